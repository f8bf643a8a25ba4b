#include "address.h"

#include <string>

namespace policybridge {

Status check_address(std::string_view address) {
  const auto refused = [&](const std::string &why) {
    return invalid_argument("'" + std::string(address) + "' " + why);
  };
  if (address.substr(0, 7) == "http://" || address.substr(0, 8) == "https://")
    return refused("is a page and no policy server: give socket:PATH, grpc:HOST:PORT or grpcs:HOST:PORT");
  constexpr std::string_view ending = ".sock";
  const bool is_file = address.size() > ending.size() && address.substr(address.size() - ending.size()) == ending;
  if (is_file && address.find_first_of(":/") == std::string_view::npos)
    return refused("has no port: for a Unix socket give socket:" + std::string(address) + ", for gRPC HOST:PORT");
  return {};
}

} // namespace policybridge
