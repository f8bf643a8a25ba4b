#include "handles.h"

using namespace policybridge;
using namespace policybridge::c;

const char *pb_element_type_name(pb_element_type type) { return to_string(static_cast<ElementType>(type)); }

pb_status pb_element_type_from(const char *name, pb_element_type *type, pb_error *error) {
  if (!name || !type)
    return null_error("an element type's name, or where to put it,", error);
  return at_edge(error, [&]() -> Status {
    const std::optional<ElementType> known = element_type_from(name);
    if (!known)
      return invalid_argument("unknown element type '" + std::string(name) + "'; int64_t is one, and string");
    *type = static_cast<pb_element_type>(*known);
    return {};
  });
}

const char *pb_tensor_name(const pb_tensor *tensor) { return tensor ? tensor_of(tensor)->spec().name.c_str() : ""; }

pb_element_type pb_tensor_type(const pb_tensor *tensor) {
  return static_cast<pb_element_type>(tensor ? tensor_of(tensor)->spec().type : ElementType{});
}

size_t pb_tensor_count(const pb_tensor *tensor) { return tensor ? tensor_of(tensor)->count() : 0; }

size_t pb_tensor_rank(const pb_tensor *tensor) { return tensor ? tensor_of(tensor)->shape().size() : 0; }

const int64_t *pb_tensor_shape(const pb_tensor *tensor) { return tensor ? tensor_of(tensor)->shape().data() : nullptr; }

void *pb_tensor_data(pb_tensor *tensor, pb_element_type type) {
  return tensor && pb_tensor_type(tensor) == type ? tensor_of(tensor)->raw() : nullptr;
}

const void *pb_tensor_values(const pb_tensor *tensor, pb_element_type type) {
  return tensor && pb_tensor_type(tensor) == type ? tensor_of(tensor)->raw() : nullptr;
}

pb_text pb_tensor_text(const pb_tensor *tensor, size_t index) {
  const std::string_view text = tensor ? tensor_of(tensor)->text(index) : std::string_view();
  return {text.data(), text.size()};
}

pb_status pb_tensor_set(pb_tensor *tensor, pb_element_type type, const void *values, size_t count, const int64_t *shape,
                        size_t rank, pb_error *error) {
  if (!tensor || (count && !values) || (rank && !shape))
    return null_error("a tensor, its values or its shape", error);
  return at_edge(error, [&] {
    return tensor_of(tensor)->set_raw(static_cast<ElementType>(type), values, count,
                                      Span<const std::int64_t>(shape, rank));
  });
}

pb_status pb_tensor_set_texts(pb_tensor *tensor, const pb_text *texts, size_t count, const int64_t *shape, size_t rank,
                              pb_error *error) {
  if (!tensor || (count && !texts) || (rank && !shape))
    return null_error("a tensor, its texts or its shape", error);
  return at_edge(error, [&] {
    std::vector<std::string_view> views;
    for (size_t n = 0; n < count; ++n)
      views.emplace_back(texts[n].data, texts[n].size);
    return tensor_of(tensor)->set_texts(views, Span<const std::int64_t>(shape, rank));
  });
}
