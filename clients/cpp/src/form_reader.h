#pragma once

#include "form_program.h"

#include <string_view>

namespace policybridge::forms {

/// Read the tables of a form into a program, whose forests stay in `bytes`. Only the tables are checked.
Status read_program(std::string_view bytes, Program &program);

/// Check that a program keeps to the rules and bounds of docs/forms.md.
Status check_program(const Program &program);

} // namespace policybridge::forms
