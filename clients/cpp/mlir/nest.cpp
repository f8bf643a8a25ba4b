#include "nest.h"

#include "sha256.h"
#include "utf8.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/TilingInterfaceImpl.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/TilingInterface.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using mlir::linalg::LinalgOp;

namespace policybridge::plugin {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

/// The product of numbers that are not negative, at most `most`.
std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t made = 0;
  return __builtin_mul_overflow(a, b, &made) ? most : made;
}

/// Whether `expression` is a sum of loops times positive factors.
bool is_sum(AffineExpr expression) {
  if (isa<AffineDimExpr>(expression))
    return true;
  const auto binary = dyn_cast<AffineBinaryOpExpr>(expression);
  if (!binary)
    return false;
  if (binary.getKind() == AffineExprKind::Add)
    return is_sum(binary.getLHS()) && is_sum(binary.getRHS());
  const auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  return binary.getKind() == AffineExprKind::Mul && factor && factor.getValue() > 0 && is_sum(binary.getLHS());
}

bool has_sums(AffineMap map) {
  return !map.getNumSymbols() && llvm::all_of(map.getResults(), [](AffineExpr expression) {
    const auto constant = dyn_cast<AffineConstantExpr>(expression);
    return constant ? constant.getValue() == 0 : is_sum(expression);
  });
}

/// By how much a sum of loops grows with each step of a loop.
std::int64_t factor_of(AffineExpr expression, unsigned loop) {
  if (const auto dim = dyn_cast<AffineDimExpr>(expression))
    return dim.getPosition() == loop;
  const auto binary = dyn_cast<AffineBinaryOpExpr>(expression);
  if (!binary)
    return 0;
  if (binary.getKind() == AffineExprKind::Add)
    return factor_of(binary.getLHS(), loop) + factor_of(binary.getRHS(), loop);
  return product(factor_of(binary.getLHS(), loop), cast<AffineConstantExpr>(binary.getRHS()).getValue());
}

/// Of each dimension, in elements; 0 where it is not known, row-major for a tensor.
SmallVector<std::int64_t> strides_of(ShapedType type) {
  const auto rank = static_cast<std::size_t>(type.getRank());
  SmallVector<std::int64_t> strides;
  if (const auto memref = dyn_cast<MemRefType>(type)) {
    std::int64_t offset = 0;
    if (failed(memref.getStridesAndOffset(strides, offset)))
      strides.assign(rank, 0);
    std::replace(strides.begin(), strides.end(), ShapedType::kDynamic, std::int64_t{0});
    return strides;
  }
  strides.assign(rank, 0);
  std::int64_t stride = 1;
  for (std::size_t dim = rank; dim-- > 0; stride = product(stride, type.getShape()[dim]))
    strides[dim] = stride;
  return strides;
}

/// Of one element; 0 for a type of no known width.
std::int64_t bits_of(Type type) {
  return llvm::TypeSwitch<Type, std::int64_t>(type)
      .Case<IntegerType, FloatType>([](auto number) { return number.getWidth(); })
      .Case<IndexType>([](auto) { return 64; })
      .Case<ComplexType>([](ComplexType complex) { return 2 * bits_of(complex.getElementType()); })
      .Case<VectorType>([](VectorType vector) {
        std::int64_t bits = bits_of(vector.getElementType());
        for (const std::int64_t size : vector.getShape())
          bits = product(bits, size);
        return bits;
      })
      .Default([](Type) { return 0; });
}

std::int64_t bytes_of(ShapedType type) {
  std::int64_t bits = bits_of(type.getElementType());
  for (const std::int64_t size : type.getShape())
    bits = product(bits, size);
  return bits == most ? most : bits / 8;
}

/// Whether there are slices of such an operand: upstream makes none of a layout without strides, and a slice may not
/// have the encoding of its tensor.
bool can_be_sliced(Type type) {
  if (auto memref = dyn_cast<MemRefType>(type))
    return memref.isStrided();
  const auto tensor = dyn_cast<RankedTensorType>(type);
  return !tensor || !tensor.getEncoding();
}

bool can_be_tiled(LinalgOp operation) {
  if (!isa<TilingInterface>(operation.getOperation()) || operation.hasDynamicShape())
    return false;
  if (!operation.hasPureTensorSemantics() && !operation.hasPureBufferSemantics())
    return false;
  const unsigned loops = operation.getNumLoops();
  if (loops == 0 || loops > most_loops)
    return false;
  for (OpOperand &operand : operation->getOpOperands())
    if (!can_be_sliced(operand.get().getType()) || !has_sums(operation.getMatchingIndexingMap(&operand)))
      return false;
  for (OpOperand &written : operation.getDpsInitsMutable())
    if (!operation.getMatchingIndexingMap(&written).isProjectedPermutation())
      return false;
  return llvm::all_of(operation.getStaticLoopRanges(), [](std::int64_t extent) { return extent > 0; });
}

OperationKind kind_of(LinalgOp operation) {
  if (linalg::isaContractionOpInterface(operation))
    return OperationKind::Contraction;
  if (linalg::isaConvolutionOpInterface(operation))
    return OperationKind::Convolution;
  return operation.getNumReductionLoops() ? OperationKind::Other : OperationKind::Elementwise;
}

void tell_operand(Question &question, std::size_t place, ShapedType type, AffineMap map) {
  question.element_bits = std::max(question.element_bits, bits_of(type.getElementType()));
  if (place >= most_operands)
    return;
  question.operand_bytes[place] = bytes_of(type);
  const SmallVector<std::int64_t> strides = strides_of(type);
  for (unsigned loop = 0; loop < map.getNumDims(); ++loop) {
    std::int64_t &stride = question.strides[place * most_loops + loop];
    for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
      if (__builtin_add_overflow(stride, product(factor_of(map.getResult(dim), loop), strides[dim]), &stride))
        stride = most;
  }
}

Question question_of(LinalgOp operation) {
  Question question;
  const StringRef name = operation->getName().getStringRef();
  question.operation = static_cast<std::int64_t>(sha256_head({name.data(), name.size()}));
  question.kind = static_cast<std::int64_t>(kind_of(operation));
  question.loops = operation.getNumLoops();
  llvm::copy(operation.getStaticLoopRanges(), question.extents.begin());
  for (const auto [loop, type] : llvm::enumerate(operation.getIteratorTypesArray()))
    question.parallels[loop] = type == utils::IteratorType::parallel;
  std::size_t place = 0;
  for (OpOperand &operand : operation->getOpOperands())
    if (const auto type = dyn_cast<ShapedType>(operand.get().getType()))
      tell_operand(question, place++, type, operation.getMatchingIndexingMap(&operand));
  return question;
}

/// The symbols around an operation, from the outermost. MLIR's names may have any bytes; those that are not UTF-8
/// become '?'.
std::string function_of(Operation *operation, ModuleOp module) {
  std::string name;
  for (Operation *at = operation->getParentOp(); at && at != module; at = at->getParentOp())
    if (const auto symbol = at->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
      name = symbol.str() + (name.empty() ? "" : "::" + name);
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t length = utf8_length(std::string_view(name).substr(at));
    if (!length)
      name[at] = '?';
    at += std::max<std::size_t>(length, 1);
  }
  return name;
}

} // namespace

Question Nest::about(std::size_t loop, const std::vector<std::int64_t> &tile) const {
  Question asked = question;
  asked.loop = static_cast<std::int64_t>(loop);
  asked.extent = question.extents[loop];
  asked.parallel = question.parallels[loop];
  std::copy(tile.begin(), tile.end(), asked.tiles.begin());
  for (std::size_t operand = 0; operand < most_operands; ++operand) {
    asked.stride[operand] = question.strides[operand * most_loops + loop];
    if (!question.operand_bytes[operand])
      continue;
    std::int64_t &bytes = asked.tile_bytes[operand] = question.element_bits / 8;
    for (std::size_t other = 0; other < loops(); ++other)
      if (question.strides[operand * most_loops + other])
        bytes = product(bytes, asked.tiles[other] ? asked.tiles[other] : question.extents[other]);
  }
  return asked;
}

void register_dialects(DialectRegistry &registry) {
  registry.insert<affine::AffineDialect, arith::ArithDialect, linalg::LinalgDialect, memref::MemRefDialect,
                  scf::SCFDialect, tensor::TensorDialect>();
  linalg::registerTilingInterfaceExternalModels(registry);
}

std::vector<Nest> nests_of(ModuleOp module) {
  std::vector<Nest> nests;
  llvm::StringMap<unsigned> numbers;
  module.walk<WalkOrder::PreOrder>([&](LinalgOp operation) {
    const std::string site = function_of(operation, module) + "/" + operation->getName().getStringRef().str();
    const unsigned number = numbers[site]++;
    if (can_be_tiled(operation))
      nests.push_back({operation, site + "/" + std::to_string(number), question_of(operation)});
  });
  return nests;
}

LogicalResult tile(const Nest &nest, const std::vector<std::int64_t> &sizes) {
  if (llvm::all_of(sizes, [](std::int64_t size) { return size == 0; }))
    return success();
  Operation *operation = nest.operation;
  IRRewriter rewriter(operation->getContext());
  rewriter.setInsertionPoint(operation);
  const SmallVector<std::int64_t> wanted(sizes.begin(), sizes.end());
  const auto options = scf::SCFTilingOptions().setTileSizes(getAsIndexOpFoldResult(rewriter.getContext(), wanted));
  auto tiled = scf::tileUsingSCF(rewriter, cast<TilingInterface>(operation), options);
  if (failed(tiled))
    return failure();
  if (operation->getNumResults())
    rewriter.replaceOp(operation, tiled->replacements);
  else
    rewriter.eraseOp(operation);
  return success();
}

} // namespace policybridge::plugin
