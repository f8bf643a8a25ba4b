#include "address.h"
#include "guard.h"
#include "policybridge/connection.h"
#include "several.h"

#include <array>

namespace policybridge {

namespace {

constexpr std::array<Scheme, 2> built_in = {socket_scheme, pipe_scheme};

/// Schemes that other libraries provide.
struct OptionalScheme {
  std::string_view name;
  const char *remedy;
};

constexpr std::array<OptionalScheme, 3> optional_schemes = {{
    {"grpc",
     "link PolicyBridge::grpc (built where libgrpc++-dev and protobuf-compiler-grpc are installed) and give its "
     "grpc_scheme in ConnectOptions::schemes"},
    {"grpcs",
     "link PolicyBridge::grpc (built where libgrpc++-dev and protobuf-compiler-grpc are installed) and give its "
     "grpcs_scheme in ConnectOptions::schemes"},
    {"onnx", "link PolicyBridge::onnx and give its onnx_scheme in ConnectOptions::schemes"},
}};

const Scheme *find(std::string_view name, const ConnectOptions &options) {
  for (const Scheme &scheme : options.schemes)
    if (scheme.name == name)
      return &scheme;
  for (const Scheme &scheme : built_in)
    if (scheme.name == name)
      return &scheme;
  return nullptr;
}

const OptionalScheme *find_optional(std::string_view name) {
  for (const OptionalScheme &library : optional_schemes)
    if (library.name == name)
      return &library;
  return nullptr;
}

struct Address {
  std::string_view scheme;
  std::string_view target;
};

Address parse(std::string_view address, const ConnectOptions &options) {
  const std::size_t colon = address.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view scheme = address.substr(0, colon);
    if (find(scheme, options) || find_optional(scheme))
      return {scheme, address.substr(colon + 1)};
  }
  const bool path = address.find('/') != std::string_view::npos && address.substr(0, 5) != "unix:";
  return {path ? "socket" : "grpc", address};
}

using Made = Result<std::shared_ptr<Connection>>;

Made connect_one(std::string_view address, const ConnectOptions &options) {
  if (Status status = check_address(address); !status.ok())
    return status;
  const auto [name, target] = parse(address, options);
  if (target.empty())
    return invalid_argument("'" + std::string(address) + "' is no address; socket:PATH is one");
  if (const Scheme *scheme = find(name, options))
    return scheme->connect(target, options);
  return unimplemented("there is no connection '" + std::string(name) + "' in this program, for the address '" +
                       std::string(address) + "'; " + find_optional(name)->remedy);
}

/// Addresses of kinds that this program does not have are for others who read the same variable.
Made connect_several(const std::vector<std::string> &addresses, const ConnectOptions &options) {
  std::vector<Server> servers;
  Status refused;
  for (const std::string &address : addresses) {
    Made made = connect_one(address, options);
    const auto [name, target] = parse(address, options);
    if (made.ok())
      servers.push_back(
          {std::string(name).append(":").append(target), name == "socket" ? std::string(target) : "", *made});
    else if (made.status().code() != StatusCode::Unimplemented)
      return made;
    else
      refused = made.status();
  }
  if (servers.empty())
    return refused;
  return {std::make_shared<SeveralServers>(std::move(servers))};
}

} // namespace

Result<std::shared_ptr<Connection>> connect(std::string_view address, const ConnectOptions &options) {
  return guarded([&]() -> Made {
    if (options.timeout <= options.timeout.zero())
      return invalid_argument("a timeout is more than 0 seconds, not " + std::to_string(options.timeout.count()) +
                              " microseconds");
    const auto is_scheme = [&](std::string_view name) { return find(name, options) || find_optional(name); };
    const std::vector<std::string> addresses = split_addresses(address, is_scheme);
    return addresses.size() == 1 ? connect_one(address, options) : connect_several(addresses, options);
  });
}

} // namespace policybridge
