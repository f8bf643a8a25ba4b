#ifndef POLICYBRIDGE_SRC_TRUSTED_H
#define POLICYBRIDGE_SRC_TRUSTED_H

#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace policybridge {

/// Whether a file or folder belongs to this user, to the administrator or to the owner of this program, and is closed to
/// what all others would write. Beside a program in /tmp/x anybody may make the folder /tmp/lib.
inline bool is_trusted(const std::string &path) {
  struct stat about = {}, program = {};
  if (stat(path.c_str(), &about) || stat("/proc/self/exe", &program))
    return false;
  const bool is_known = about.st_uid == geteuid() || about.st_uid == 0 || about.st_uid == program.st_uid;
  return is_known && !(about.st_mode & S_IWOTH);
}

} // namespace policybridge

#endif
