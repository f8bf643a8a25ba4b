#include "signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace policybridge {

Signals::Signals() {
  sigset_t stopping;
  sigemptyset(&stopping);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN)
      sigaddset(&stopping, number);
  }
  sigprocmask(SIG_BLOCK, &stopping, &before_);
  descriptor_ = Descriptor(signalfd(-1, &stopping, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<int> Signals::received() {
  signalfd_siginfo signal{};
  if (!received_ && read(descriptor_.get(), &signal, sizeof signal) == sizeof signal)
    received_ = static_cast<int>(signal.ssi_signo);
  return received_;
}

void Signals::restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

} // namespace policybridge
