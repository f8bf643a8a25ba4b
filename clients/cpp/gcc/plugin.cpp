// A plugin for stock GCC: a policy decides how many copies of a loop's body GCC makes.

#include "unit_labels.h"
#include "unroll_pass.h"

#include "gcc-plugin.h"

#include "context.h"
#include "diagnostic-core.h"
#include "plugin-version.h"
#include "toplev.h"
#include "tree-pass.h"

// GCC loads no plugin without this symbol: the headers are under the GPL.
extern "C" int plugin_is_GPL_compatible;
int plugin_is_GPL_compatible;

namespace {

using namespace policybridge::plugin;

/// Whether the compiler has the headers that the plugin was built with; says so where not. The distribution's revision
/// does not matter.
bool is_right_host(const plugin_name_args &plugin, const plugin_gcc_version &host) {
  if (std::string_view(host.basever) == gcc_version.basever)
    return true;
  (void)std::fprintf(stderr, "policybridge: %s is a plugin for GCC %s, and this compiler is GCC %s\n", plugin.base_name,
                     gcc_version.basever, host.basever);
  return false;
}

std::vector<Argument> arguments_of(const plugin_name_args &plugin) {
  std::vector<Argument> arguments;
  for (const plugin_argument *each = plugin.argv; each != plugin.argv + plugin.argc; ++each)
    arguments.emplace_back(each->key, each->value ? each->value : "");
  return arguments;
}

/// The plugin as the command line loads it.
struct Loaded {
  std::string name;
  std::vector<Argument> arguments;
};

UnitSession *make_session(const Loaded &plugin) {
  Settings settings;
  policybridge::Status read = settings.read(plugin.name, plugin.arguments);
  return new UnitSession(std::move(settings), std::move(read), main_input_filename ? main_input_filename : "",
                         std::string("policybridge-unroll-gcc-") + gcc_version.basever, unit_labels());
}

void insert(const Loaded &plugin, opt_pass *pass, const char *before) {
  register_pass_info where{pass, before, 1, PASS_POS_INSERT_BEFORE};
  register_callback(plugin.name.c_str(), PLUGIN_PASS_MANAGER_SETUP, nullptr, &where);
}

void finish(void *, void *session) { static_cast<UnitSession *>(session)->finish(); }

/// Called before a translation unit is read; not where GCC only preprocesses. A preprocessed file has told its source's
/// name by now.
void begin_unit(void *, void *given) {
  // Nor is code generated here: where the syntax is checked, and where modules are merged at link time.
  if (flag_syntax_only || flag_wpa)
    return;
  const Loaded &plugin = *static_cast<const Loaded *>(given);
  // It lives as long as the compiler.
  UnitSession *session = make_session(plugin);
  insert(plugin, make_unroll_pass(*session), "loop2_unroll");
  insert(plugin, make_counting_pass(*session), "final");
  register_callback(plugin.name.c_str(), PLUGIN_FINISH, finish, session);
}

} // namespace

int plugin_init(plugin_name_args *plugin, plugin_gcc_version *host) {
  if (!is_right_host(*plugin, *host))
    return 1;
  const std::vector<Argument> arguments = arguments_of(*plugin);
  if (const std::string unknown = unknown_argument(arguments); !unknown.empty()) {
    error("policybridge: %s has no argument %qs", plugin->base_name, unknown.c_str());
    return 1;
  }
  // It lives as long as the compiler.
  register_callback(plugin->base_name, PLUGIN_START_UNIT, begin_unit, new Loaded{plugin->base_name, arguments});
  return 0;
}
