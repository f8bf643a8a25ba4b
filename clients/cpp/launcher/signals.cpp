#include "signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace policybridge {

Signals::Signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN)
      sigaddset(&taken, number);
  }
  sigprocmask(SIG_BLOCK, &taken, &before_);
  descriptor_ = Descriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<int> Signals::taken() {
  signalfd_siginfo told{};
  if (read(descriptor_.get(), &told, sizeof told) != sizeof told)
    return {};
  return static_cast<int>(told.ssi_signo);
}

void Signals::restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

} // namespace policybridge
