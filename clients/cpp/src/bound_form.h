#ifndef POLICYBRIDGE_SRC_BOUND_FORM_H
#define POLICYBRIDGE_SRC_BOUND_FORM_H

#include "policybridge/form.h"
#include "policybridge/session.h"
#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace policybridge {

/// A form, bound by name to the features that a client sends. For one thread at a time.
class BoundForm {
public:
  /// Nothing if they do not fit, or if decisions on them cannot be reported. Then the server is asked, and says why.
  static std::optional<BoundForm> bind(const Form &form, const Signature &signature);

  /// Decide on one packed observation of the client; `advice` gets the packed advice. With an exploration it is drawn as
  /// decision `number` of the session, counted from 1. Internal: the policy failed.
  Status decide(std::string_view observation, const std::optional<Exploration> &exploration, std::uint64_t number,
                AdviceBuffer &advice);

private:
  /// Bytes of the client's observation, and their place in the form's.
  struct Piece {
    std::size_t from, to, size;
  };

  BoundForm(const Form &form, std::vector<Piece> pieces)
      : evaluator_(form), pieces_(std::move(pieces)), advice_size_(static_cast<std::size_t>(form.advice().byte_size())) {}

  FormEvaluator evaluator_;
  std::vector<Piece> pieces_;
  std::size_t advice_size_;
};

} // namespace policybridge

#endif
