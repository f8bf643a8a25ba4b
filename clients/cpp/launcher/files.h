#pragma once

#include "descriptor.h"
#include "policybridge/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// The status for an errno, in the words of `policybridge run`: NotFound for ENOENT, else Internal.
Status system_error(int number, const std::string &path);

/// The last part of a path.
std::string file_name(std::string_view path);

/// Whether a command only tries the compiler: it names a file of autoconf's, CMake's, Meson's, waf's, zlib's or Perl's trials,
/// or /dev/null. Many configure scripts take a line on standard error for a refusal.
bool is_trial(const std::vector<std::string> &command);

/// Everything before the last part, `.` where there is nothing.
std::string folder_of(std::string_view path);

/// The folder that the process works in.
std::string working_folder();

/// The path from the root; an empty one stays empty.
std::string absolute(const std::string &path);

/// The path at which the shell would find a program; empty where it would not.
std::string find_program(const std::string &word);

/// The path with all links resolved; empty where there is no such file.
std::string real_path(const std::string &path);

bool is_file(const std::string &path);

/// A file's path, size and time of change, which tell it from the file that replaces it; empty where there is no such
/// file.
std::string identity_of(const std::string &path);

/// A file's content.
Result<std::string> read_file(const std::string &path);

/// Writes a file as a whole: first under another name in the same folder, which is this thread's, then renamed. What
/// is no file (a device, a pipe, a link) is written through, and not replaced.
Status write_file(const std::string &path, std::string_view content);

/// Makes a folder and those above it, as far as possible.
void make_folders(const std::string &path);

/// The paths that match a pattern of the shell.
std::vector<std::string> matches_of(const std::string &pattern);

/// Removes a folder with all that is in it, as far as possible.
void remove_tree(const std::string &path);

/// An environment variable; empty where it is not set.
std::string variable(const char *name);

} // namespace policybridge
