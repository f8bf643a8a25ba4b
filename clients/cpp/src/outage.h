#ifndef POLICYBRIDGE_SRC_OUTAGE_H
#define POLICYBRIDGE_SRC_OUTAGE_H

#include "policybridge/session.h"
#include "policybridge/status.h"

#include <chrono>
#include <string>

namespace policybridge {

/// Remembers for a while that a server did not answer in time about a policy, so that the other compilations of a build
/// need not wait for it too.
///
/// The memory is the time of change of an empty file, in a folder that only this user can write:
/// $XDG_RUNTIME_DIR/policybridge, or $TMPDIR/policybridge-UID (in /tmp where TMPDIR is not set). `policybridge run`
/// uses the same file. Where there is no such folder, or it belongs to somebody else, nothing is remembered.
class Outage {
public:
  using Time = std::chrono::duration<double>;

  /// `address`: as `connect` takes it. `retry_after`: how long an outage is remembered; 0: not at all.
  Outage(const std::string &address, const PolicyReference &policy, Time retry_after);

  /// DeadlineExceeded: the server did not answer a moment ago.
  Status check() const;

  /// Remember `failure`, if it is that the server did not answer in time.
  void remember(const Status &failure) const;

private:
  std::string address_;
  std::string name_;
  Time retry_after_;
};

} // namespace policybridge

#endif
