#pragma once

#include "error.h"

#include <string>
#include <string_view>

namespace policybridge {

/// A file descriptor that is closed with its owner.
class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept;
  ~Descriptor() { close(); }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close();

private:
  int number_ = -1;
};

/// The last part of a path.
std::string file_name(std::string_view path);

/// Everything before the last part, `.` where there is nothing.
std::string folder_of(std::string_view path);

/// The folder that the process works in.
std::string working_folder();

/// Where the shell would find a program; empty where it would not.
std::string find_program(const std::string &word);

/// A path without links, empty where there is no such file.
std::string real_path(const std::string &path);

bool is_file(const std::string &path);

/// A file's content; the error is a System one.
Result<std::string> read_file(const std::string &path);

/// Writes a file at once, never a part of it: to a name beside it first.
Failure write_file(const std::string &path, std::string_view content);

/// Makes a folder and those above it, as far as possible.
void make_folders(const std::string &path);

/// Removes a folder with all that is in it, as far as possible.
void remove_tree(const std::string &path);

/// An environment variable; empty where it is not set.
std::string variable(const char *name);

} // namespace policybridge
