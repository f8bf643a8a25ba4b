#ifndef POLICYBRIDGE_TESTS_CHANNEL_DRIVER_H
#define POLICYBRIDGE_TESTS_CHANNEL_DRIVER_H

#include "policybridge/connection.h"

namespace policybridge {

/// Use one connection as a script on standard input says, and answer each line by one on standard output.
///
/// `main`'s arguments are the address and the timeout in milliseconds. Words are separated by blanks, sessions have the
/// numbers 0, 1, … in the order they were opened, tensors are in the session form of the SerDes bitstream, in
/// hexadecimal digits. Answers are `ok …` or `error CODE MESSAGE`.
///
///     feature NAME TYPE DIMENSION…     of all sessions that are opened from here on, as are the next five
///     advice NAME TYPE DIMENSION…
///     option NAME VALUE                and `label`
///     opening-context NAME
///     explore SEED TEMPERATURE EPSILON
///     forget                           all of these
///     open POLICY                      -> ok ID NAME VERSION DIGEST; ok where the channel does not say
///     ask SESSION STEP OBSERVATION     -> ok ADVICE LOG_PROBABILITY, the last only where there is one
///     context SESSION NAME
///     report SESSION STATUS NAME VALUE…
///     report-past ID STATUS NAME VALUE…
///     is-open SESSION                  -> ok 1
///     close SESSION
///     check
///     disconnect                       give the connection back, but not its sessions
///     many THREADS DECISIONS POLICY OBSERVATION   in each thread a session of its own that asks and closes
///                                      -> ok and the different advices that came
int drive(std::vector<Scheme> schemes, int argument_count, char **arguments);

} // namespace policybridge

#endif
