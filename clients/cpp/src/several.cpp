#include "several.h"

#include "guard.h"
#include "outage.h"

#include <algorithm>
#include <unistd.h>

namespace policybridge {

namespace {

/// For how long a server that did not answer in time is asked after the others, in all processes of this user.
constexpr Outage::Time remembered = std::chrono::seconds(60);

bool is_away(const Status &status) {
  return status.code() == StatusCode::Unavailable || status.code() == StatusCode::DeadlineExceeded;
}

/// What failed with each server, as one status.
class Failures {
public:
  void add(const Status &status) {
    count_ += 1;
    is_late_ = is_late_ || status.code() == StatusCode::DeadlineExceeded;
    texts_ += (texts_.empty() ? "" : "; ") + status.message();
  }

  Status status() const {
    std::string text = "none of " + std::to_string(count_) + " servers answers: " + texts_;
    return is_late_ ? deadline_exceeded(std::move(text)) : unavailable(std::move(text));
  }

private:
  int count_ = 0;
  bool is_late_ = false;
  std::string texts_;
};

const Status &status_of(const Status &answer) { return answer; }

template <class Value> const Status &status_of(const Result<Value> &answer) { return answer.status(); }

} // namespace

std::vector<std::string> split_addresses(std::string_view text, const std::function<bool(std::string_view)> &is_scheme) {
  std::vector<std::string> addresses;
  std::size_t begin = 0;
  for (std::size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',', comma + 1)) {
    const std::size_t next = text.find_first_not_of(" \t", comma + 1);
    const std::size_t colon = next == std::string_view::npos ? next : text.find_first_of(":,/", next);
    if (colon == std::string_view::npos || text[colon] != ':' || !is_scheme(text.substr(next, colon - next)))
      continue;
    addresses.emplace_back(text.substr(begin, comma - begin));
    begin = next;
  }
  addresses.emplace_back(text.substr(begin));
  return addresses;
}

SeveralServers::SeveralServers(std::vector<Server> servers) : servers_(std::move(servers)) {
  std::stable_partition(servers_.begin(), servers_.end(), [](const Server &server) {
    return !server.socket.empty() && access(server.socket.c_str(), F_OK) == 0;
  });
}

/// Ask one server after the other until one answers. Its answer counts, even if it is an error.
template <class Answer>
Answer SeveralServers::first(const PolicyReference &policy, const std::function<Answer(Connection &)> &ask) {
  std::vector<const Server *> order;
  for (const Server &server : servers_)
    order.push_back(&server);
  const auto outage = [&](const Server &server) { return Outage(server.address, policy, remembered); };
  // A server that did not answer in time is not waited for in each compilation of a build, if there is another.
  std::stable_partition(order.begin(), order.end(),
                        [&](const Server *server) { return outage(*server).check().ok(); });
  Failures failures;
  for (const Server *server : order) {
    Answer answer = ask(*server->connection);
    const Status &status = status_of(answer);
    if (!is_away(status))
      return answer;
    outage(*server).remember(status);
    failures.add(status);
  }
  return failures.status();
}

Result<std::unique_ptr<Session>> SeveralServers::open(const OpenOptions &options, const Signature &signature) {
  using Opened = Result<std::unique_ptr<Session>>;
  return guarded([&] {
    return first<Opened>(options.policy, [&](Connection &server) { return server.open(options, signature); });
  });
}

Status SeveralServers::check() {
  // Without a policy: whether the server can be reached at all.
  return guarded([&] { return first<Status>({}, [](Connection &server) { return server.check(); }); });
}

Status SeveralServers::report_outcome(const std::string &session_id, const Outcome &outcome) {
  return guarded([&]() -> Status {
    Status refused;
    for (const Server &server : servers_) {
      Status status = server.connection->report_outcome(session_id, outcome);
      const bool lacks = status.code() == StatusCode::NotFound;
      if (!lacks && status.code() != StatusCode::Unimplemented && !is_away(status))
        return status;
      // One that has a ledger says more than one that has none, and than one that is away.
      if (refused.ok() || lacks)
        refused = std::move(status);
    }
    return refused;
  });
}

} // namespace policybridge
