#include "early.h"

#include "outage.h"
#include "process_names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ManagedStatic.h"

#include <mutex>

namespace policybridge::plugin {
namespace {

/// The connection of this process. It is ended when LLVM shuts down, or at the process's exit where LLVM does not.
struct Held {
  ~Held() {
    if (connection)
      connection->end();
  }

  std::mutex mutex;
  ServerSettings settings;
  std::shared_ptr<EarlyConnection> connection;
};

llvm::ManagedStatic<Held> held;

void end_at_exit() {
  if (held.isConstructed() && held->connection)
    held->connection->end();
}

/// The plugin's settings by the words of the process. Words that a file or the driver adds are missing.
class Words final : public SettingsSource {
public:
  explicit Words(const std::vector<std::string> &words) : words_(words) {}

  std::optional<std::string> written(std::string_view name) const override {
    const std::vector<std::string> all = all_written(name);
    return all.empty() ? std::nullopt : std::optional(all.back());
  }

  std::vector<std::string> all_written(std::string_view name) const override {
    std::vector<std::string> values;
    for (const std::string &word : words_)
      if (const std::string start = spelled(name) + "="; word.compare(0, start.size(), start) == 0)
        values.push_back(word.substr(start.size()));
    return values;
  }

  std::string spelled(std::string_view name) const override { return "-policybridge-" + std::string(name); }

private:
  const std::vector<std::string> &words_;
};

/// Whether a clang of these words optimises a module and writes it, as far as its words show.
bool optimises(const std::vector<std::string> &words) {
  const auto has = [&](const char *word) { return llvm::is_contained(words, word); };
  const bool has_level = llvm::any_of(words, [](const std::string &word) {
    return word.size() > 1 && word.compare(0, 2, "-O") == 0 && word != "-O0";
  });
  const bool writes = has("-c") || has("-S") || has("-emit-obj") || has("-emit-llvm") || has("-emit-llvm-bc");
  return has_level && writes && llvm::none_of(std::initializer_list<const char *>{"-E", "-M", "-MM", "-###", "-fsyntax-only"}, has);
}

bool is_local(const Words &words) {
  return llvm::any_of(std::initializer_list<const char *>{"decisions", "sites", "passes"},
                      [&](const char *name) { return !words.value(name).empty(); });
}

} // namespace

bool begin_early() {
  const std::vector<std::string> command = own_command();
  const Words words(command);
  ServerSettings settings;
  if (!optimises(command) || is_local(words) || !words.read_fallback(settings.default_stands_in).ok() ||
      !settings.read_server(words).ok())
    return false;
  const bool pays = is_near(settings.server) ? settings.evaluate != Evaluate::There : is_far(settings.server);
  if (!pays)
    return false;
  if (!settings.outage().check().ok())
    return false;
  held->settings = settings;
  held->connection = EarlyConnection::begin(settings.server, settings.timeout, end_at_exit);
  return held->connection != nullptr;
}

std::shared_ptr<EarlyConnection> early_connection(const ServerSettings *settings) {
  if (!held.isConstructed())
    return nullptr;
  const std::lock_guard<std::mutex> lock(held->mutex);
  const bool fits = settings && settings->server == held->settings.server && settings->timeout == held->settings.timeout;
  if (!fits && held->connection) {
    held->connection->end();
    // A later module must not get a connection that has ended.
    held->connection.reset();
  }
  return fits ? held->connection : nullptr;
}

} // namespace policybridge::plugin
