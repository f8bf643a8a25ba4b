#include "access.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace policybridge {
namespace {

std::string chosen(const std::string &given, const char *variable) {
  const char *set = std::getenv(variable);
  return given.empty() && set ? set : given;
}

/// Read a file into `content`; an empty path leaves it as it is.
Status read_text(const std::string &path, const char *what, std::string &content) {
  if (path.empty())
    return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return invalid_argument(std::string(what) + " cannot be read from " + path + ": " +
                            std::strerror(errno ? errno : EIO));
  content = text.str();
  return {};
}

bool is_space(char byte) { return std::strchr(" \t\r\n\f\v", byte) && byte; }

/// Read the token into `token`. InvalidArgument: the file holds none.
Status read_token(const std::string &path, std::string &token) {
  if (Status status = read_text(path, "the token", token); !status.ok() || path.empty())
    return status;
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), is_space));
  token.erase(std::find_if_not(token.rbegin(), token.rend(), is_space).base(), token.end());
  if (token.empty() || !std::all_of(token.begin(), token.end(), [](char byte) { return byte >= ' ' && byte <= '~'; }))
    return invalid_argument("the file " + path + " holds no token: one line of printable ASCII characters");
  return {};
}

bool is_local(const std::string &target) {
  return target.compare(0, 5, "unix:") == 0 || target.compare(0, 14, "unix-abstract:") == 0;
}

bool is_loopback(const std::string &target) {
  std::string host = target.substr(0, std::min(target.rfind(':'), target.size()));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  in_addr four = {};
  in6_addr six = {};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1)
    return ntohl(four.s_addr) >> 24 == 127;
  return host == "localhost" || (inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

Result<std::shared_ptr<::grpc::ChannelCredentials>> tls(const Credentials &files) {
  ::grpc::SslCredentialsOptions options;
  for (const Status &status : {read_text(files.ca, "the authorities' certificates", options.pem_root_certs),
                               read_text(files.certificate, "the client's certificate", options.pem_cert_chain),
                               read_text(files.key, "the client's key", options.pem_private_key)})
    if (!status.ok())
      return status;
  return ::grpc::SslCredentials(options);
}

} // namespace

Result<Access> Access::of(const Credentials &given, const std::string &target, bool secure) {
  const Credentials files = {
      chosen(given.ca, "POLICYBRIDGE_TLS_CA"), chosen(given.certificate, "POLICYBRIDGE_TLS_CERTIFICATE"),
      chosen(given.key, "POLICYBRIDGE_TLS_KEY"), chosen(given.token_file, "POLICYBRIDGE_TOKEN_FILE")};
  if (files.certificate.empty() != files.key.empty())
    return invalid_argument("a client's certificate and its key must be given together");
  Access access;
  access.channel_ = ::grpc::InsecureChannelCredentials();
  if (secure) {
    auto made = tls(files);
    if (!made.ok())
      return made.status();
    access.channel_ = *std::move(made);
  }
  std::string token;
  if (!is_local(target))
    if (Status status = read_token(files.token_file, token); !status.ok())
      return status;
  if (token.empty())
    return access;
  if (!secure && !is_loopback(target))
    return invalid_argument("a token is not sent in plaintext to " + target + "; write grpcs:" + target);
  access.authorization_ = "Bearer " + token;
  return access;
}

void Access::show(::grpc::ClientContext &call) const {
  if (!authorization_.empty())
    call.AddMetadata("authorization", authorization_);
}

} // namespace policybridge
