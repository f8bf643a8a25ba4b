#include "spool.h"

#include "guard.h"
#include "own_folder.h"
#include "protocol.h"
#include "sha256.h"

#include <cstdlib>
#include <ctime>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace policybridge {

namespace {

using SpoolClock = std::chrono::steady_clock;

constexpr std::size_t most_record = std::size_t{16} << 20;

/// Of the folder; the oldest files go first.
constexpr std::uint64_t most_spooled_bytes = std::uint64_t{64} << 20;
constexpr std::size_t most_spooled_files = 256;
constexpr std::int64_t oldest_seconds = 7 * 86400;

/// Of one session's end: records and bytes that are sent, when the last one may begin, and how long each may take.
constexpr std::size_t most_sent = 32;
constexpr std::size_t most_sent_bytes = most_record;
constexpr auto begin_within = std::chrono::milliseconds(250);
constexpr auto send_within = std::chrono::seconds(1);

std::string prefix_of(const std::string &server) { return sha256(server).substr(0, 16) + "-"; }

bool is_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

OwnFolder open_spool() {
  const char *wanted = std::getenv("POLICYBRIDGE_SPOOL");
  return wanted && std::string_view(wanted) == "0" ? OwnFolder() : OwnFolder::open("spool");
}

void trim(const OwnFolder &folder) {
  const std::vector<OwnFolder::File> files = folder.files();
  std::size_t count = files.size();
  std::uint64_t bytes = 0;
  for (const OwnFolder::File &file : files)
    bytes += file.bytes;
  for (const OwnFolder::File &file : files) {
    if (count <= most_spooled_files && bytes <= most_spooled_bytes && file.changed >= std::time(nullptr) - oldest_seconds)
      return;
    folder.remove(file.name);
    --count;
    bytes -= file.bytes;
  }
}

/// The bytes of a record that no other client sends meanwhile.
std::optional<std::string> taken(const Descriptor &file) {
  struct stat about = {};
  // Its name is gone if another client has sent it before this one locked it.
  if (!file.is_open() || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || fstat(file.get(), &about) != 0 ||
      about.st_uid != geteuid() || about.st_nlink != 1)
    return std::nullopt;
  return OwnFolder::content(file, most_record + protocol::end_line().size());
}

bool is_whole(std::string_view record) {
  const std::string end = protocol::end_line();
  return record.size() >= end.size() && record.substr(record.size() - end.size()) == end;
}

bool may_be_taken_later(const Status &status) {
  return status.code() == StatusCode::Unavailable || status.code() == StatusCode::DeadlineExceeded ||
         status.code() == StatusCode::Cancelled;
}

} // namespace

Record::Record(SessionInfo info, const OpenOptions &options)
    : info_(std::move(info)), explores_(options.exploration.has_value()), spools_(options.spool), counts_(options.records), is_given_up_(!options.spool) {
  if (spools_)
    note(protocol::resume_line(info_, options));
}

void Record::note(std::string_view line) {
  if (is_given_up_)
    return;
  if (text_.size() + line.size() > most_record)
    return give_up();
  text_.append(line);
}

void Record::give_up() noexcept {
  is_given_up_ = true;
  std::string().swap(text_);
}

void Record::note_signature(const Signature &signature) {
  if (!is_given_up_)
    signature_ = protocol::header_line(signature);
}

void Record::note_context(std::string_view name) {
  if (!is_given_up_)
    context_ = protocol::context_line(name);
}

void Record::add_decisions(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload) {
  is_settled_ = false;
  note(std::exchange(signature_, {}));
  note(std::exchange(context_, {}));
  note(protocol::decided_line(count, time, explores_));
  note(payload);
  note("\n");
}

void Record::add_outcome(const Outcome &outcome) {
  is_settled_ = false;
  note(protocol::outcome_line(outcome));
}

void Record::finish(Session &server, const Status &lost) noexcept {
  (void)guarded([&]() -> Status {
    if (!spools_)
      return {};
    RecordCounts unwanted;
    RecordCounts &counts = counts_ ? *counts_ : unwanted;
    const Status status = end(server, lost);
    if (status.ok())
      Spool::send(server, counts);
    else if (may_be_taken_later(status) && !is_settled_ && !is_given_up_)
      counts.kept += Spool::keep(server.server(), info_.id, text_.append(protocol::end_line()));
    return {};
  });
}

Status Record::end(Session &server, const Status &lost) {
  if (!lost.ok() || is_settled_)
    return lost;
  Status status = server.finish();
  is_settled_ = status.ok();
  return status;
}

bool Spool::keep(const std::string &server, const std::string &session, std::string_view record) {
  const OwnFolder folder = open_spool();
  if (server.empty() || !folder.is_open() || session.size() != 32 || !is_hex(session))
    return false;
  if (!folder.write(prefix_of(server) + session, record))
    return false;
  trim(folder);
  return true;
}

void Spool::send(Session &session, RecordCounts &counts) {
  const std::string server = session.server();
  const OwnFolder folder = open_spool();
  if (server.empty() || !folder.is_open())
    return;
  const SpoolClock::time_point end = SpoolClock::now() + begin_within;
  const std::string prefix = prefix_of(server);
  std::size_t sent = 0, bytes = 0;
  for (const OwnFolder::File &file : folder.files()) {
    const std::string_view name = file.name;
    if (name.size() != prefix.size() + 32 || name.substr(0, prefix.size()) != prefix || !is_hex(name.substr(prefix.size())))
      continue;
    if (sent++ == most_sent || bytes > most_sent_bytes || SpoolClock::now() > end)
      return;
    const Descriptor opened = folder.file(file.name);
    const std::optional<std::string> record = taken(opened);
    if (!record)
      continue;
    bytes += record->size();
    // Half a record, of a machine that went down, is of no use.
    const bool whole = is_whole(*record);
    const Status status = whole ? session.send_record(*record, send_within) : Status();
    if (status.code() == StatusCode::DeadlineExceeded || status.code() == StatusCode::Cancelled)
      return;
    if (may_be_taken_later(status))
      continue;
    folder.remove(file.name);
    if (!status.ok()) {
      ++counts.refused;
      counts.refusal = status;
    } else {
      counts.sent += whole;
    }
  }
}

} // namespace policybridge
