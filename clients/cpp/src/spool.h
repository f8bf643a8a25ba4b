#ifndef POLICYBRIDGE_SRC_SPOOL_H
#define POLICYBRIDGE_SRC_SPOOL_H

#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace policybridge {

/// What a session that decides here has reported, as proto/SOCKET.md sends it, until the server has acknowledged it. One
/// of more than 16 MiB is given up, as is one with decisions of the server.
class Record {
public:
  Record(SessionInfo info, const OpenOptions &options);

  void note_signature(const Signature &signature);
  void note_context(std::string_view name);
  void add_decisions(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload);
  void add_outcome(const Outcome &outcome);

  /// The server has acknowledged all of it so far.
  void settle() noexcept { is_settled_ = true; }
  void give_up() noexcept;
  bool is_settled() const noexcept { return is_settled_; }

  /// End the session `server`, and wait until its record is kept, unless `lost` says why that is no longer possible. Then
  /// send the records that earlier sessions left in the spool, within small bounds; or leave this one there.
  void finish(Session &server, const Status &lost) noexcept;

private:
  void note(std::string_view line);
  Status end(Session &server, const Status &lost);

  const SessionInfo info_;
  const bool explores_;
  const bool spools_;
  const std::shared_ptr<RecordCounts> counts_;
  bool is_given_up_ = false;
  bool is_settled_ = true;
  std::string text_;
  // The latest ones before the next decisions; those between, which no decision belongs to, are left out.
  std::string signature_;
  std::string context_;
};

/// The files of records: `policybridge/spool` in the user's cache folder, which the clients in Python share. Each is for
/// one server. Nothing is kept, and nothing sent, where the folder is not this user's alone, or by POLICYBRIDGE_SPOOL=0.
class Spool {
public:
  /// Keep a record for the server of an address. False: it is not kept.
  static bool keep(const std::string &server, const std::string &session, std::string_view record);

  /// Send the records for the server of a session, the oldest first: at most 32 and 16 MiB, and none is begun after 0.25 s.
  /// Those that are acknowledged, or refused for good, are removed.
  static void send(Session &session, RecordCounts &counts);
};

} // namespace policybridge

#endif
