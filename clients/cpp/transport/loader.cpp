#include "loader.h"

#include "grpc_module.h"
#include "guard.h"
#include "trusted.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <link.h>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

namespace policybridge {
namespace {

constexpr const char *file_name = "policybridge-grpc.so";
constexpr const char *symbol = "policybridge_grpc_module";
constexpr const char *remedy = "; it is built where libgrpc++-dev and protobuf-compiler-grpc are installed "
                               "(POLICYBRIDGE_GRPC=ON), and installed beside the plugins";

std::string real_path(const char *path) {
  char resolved[PATH_MAX];
  return realpath(path, resolved) ? resolved : "";
}

/// The path of the shared object that holds this function; empty where it is the program itself.
std::string own_object() {
  Dl_info object{};
  const bool known = dladdr(reinterpret_cast<const void *>(&own_object), &object) != 0 && object.dli_fname;
  const std::string path = known ? real_path(object.dli_fname) : "";
  return path == real_path("/proc/self/exe") ? "" : path;
}

/// Where the module may be: beside the shared object that holds this function, or as seen from the program that does.
std::vector<std::string> places() {
  const std::string shared = own_object();
  const std::string path = shared.empty() ? real_path("/proc/self/exe") : shared;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (!shared.empty())
    return {folder + file_name};
  std::vector<std::string> beside;
  for (const char *libraries : {"../lib", "../lib/policybridge", "../" POLICYBRIDGE_LIBDIR "/policybridge"})
    if (const std::string place = folder + libraries; is_trusted(place) || access(place.c_str(), F_OK))
      beside.push_back(place + "/" + file_name);
  return beside;
}

/// Whether the file has all its bytes: the loader would map the missing part, and the first access would end the
/// compiler. The section headers are a shared object's last part.
bool is_whole(const std::string &path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  ElfW(Ehdr) header{};
  file.seekg(0);
  if (!file.read(reinterpret_cast<char *>(&header), sizeof header))
    return false;
  const std::uint64_t end = header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
  return end <= static_cast<std::uint64_t>(size);
}

/// Open the module, which stays loaded. Its symbols and those of gRPC's libraries are shown to nobody else.
Result<void *> open_module() {
  constexpr int mode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  // By its bare name: the one that another plugin has loaded, from whatever folder. The protobuf library ends the
  // process where two of them announce the same messages.
  if (void *loaded = dlopen(file_name, mode | RTLD_NOLOAD))
    return loaded;
  std::string why;
  for (const std::string &place : places()) {
    const bool exists = access(place.c_str(), F_OK) == 0;
    if (exists && !is_whole(place))
      return unavailable("gRPC's part cannot be loaded: " + place + " is not a whole shared object");
    if (void *opened = dlopen(place.c_str(), mode))
      return opened;
    if (exists || why.empty())
      why = dlerror();
    if (exists)
      break;
  }
  return unavailable("gRPC's part cannot be loaded: " + why + remedy);
}

Result<const GrpcModule *> load_module() {
  const Result<void *> opened = open_module();
  if (!opened.ok())
    return opened.status();
  const auto *module = static_cast<const GrpcModule *>(dlsym(*opened, symbol));
  if (!module || std::strcmp(module->build, POLICYBRIDGE_BUILD) != 0)
    return unavailable(std::string(file_name) + " is of another build of PolicyBridge; install both from one");
  return module;
}

/// Loads the module, and connects, when it is first used.
class LoadedConnection final : public Connection {
public:
  LoadedConnection(std::string target, ConnectOptions options, bool secure)
      : target_(std::move(target)), options_(std::move(options)), secure_(secure) {}

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override {
    using Opened = Result<std::unique_ptr<Session>>;
    const Made &made = connection();
    return made.ok() ? (*made)->open(options, signature) : Opened(made.status());
  }

  Status check() override {
    const Made &made = connection();
    return made.ok() ? (*made)->check() : made.status();
  }

  bool prepare(const std::function<bool()> &goes_on) override {
    const Made &made = connection();
    return made.ok() && (*made)->prepare(goes_on);
  }

  Status report_outcome(const std::string &session_id, const Outcome &outcome) override {
    const Made &made = connection();
    return made.ok() ? (*made)->report_outcome(session_id, outcome) : made.status();
  }

private:
  using Made = Result<std::shared_ptr<Connection>>;

  const Made &connection() {
    std::call_once(once_, [this] { made_ = guarded([this] { return connected(); }); });
    return made_;
  }

  Made connected() const {
    const Result<const GrpcModule *> module = load_module();
    return module.ok() ? (*module)->connect(target_, options_, secure_) : Made(module.status());
  }

  const std::string target_;
  const ConnectOptions options_;
  const bool secure_;
  std::once_flag once_;
  Made made_{unavailable("nothing was loaded")};
};

Result<std::shared_ptr<Connection>> loading(std::string_view target, const ConnectOptions &options, bool secure) {
  return guarded([&]() -> Result<std::shared_ptr<Connection>> {
    return {std::make_shared<LoadedConnection>(std::string(target), options, secure)};
  });
}

} // namespace

Status load_grpc_part() {
  return guarded([] { return load_module().status(); });
}

bool has_grpc_module() {
  const std::vector<std::string> files = places();
  return std::any_of(files.begin(), files.end(),
                     [](const std::string &file) { return access(file.c_str(), F_OK) == 0; });
}

Result<std::shared_ptr<Connection>> load_grpc(std::string_view target, const ConnectOptions &options) {
  return loading(target, options, false);
}

Result<std::shared_ptr<Connection>> load_grpcs(std::string_view target, const ConnectOptions &options) {
  return loading(target, options, true);
}

} // namespace policybridge
