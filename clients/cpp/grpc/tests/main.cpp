#include "channel_driver.h"

#include "policybridge/grpc.h"

int main(int argument_count, char **arguments) {
  return policybridge::drive({policybridge::grpc_scheme, policybridge::grpcs_scheme}, argument_count, arguments);
}
