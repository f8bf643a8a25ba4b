#include "output_file.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace policybridge::plugin {

Error write_output(const std::string &path, function_ref<Error(raw_ostream &)> write) {
  const sys::fs::file_type type = sys::fs::get_file_type(path, /*Follow=*/false);
  // writeToOutput replaces the path by a new file; it must not replace a pipe, a device or a link.
  if (type == sys::fs::file_type::regular_file || type == sys::fs::file_type::file_not_found)
    return writeToOutput(path, write);
  std::error_code error;
  raw_fd_ostream out(path, error, sys::fs::OF_None);
  if (error)
    return createFileError(path, error);
  Error failed = write(out);
  out.flush();
  if (!out.has_error())
    return failed;
  error = out.error();
  out.clear_error();
  return joinErrors(std::move(failed), createFileError(path, error));
}

} // namespace policybridge::plugin
