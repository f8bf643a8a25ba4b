#include "channel_driver.h"

#include "policybridge/onnx.h"

int main(int argument_count, char **arguments) {
  return policybridge::drive({policybridge::onnx_scheme}, argument_count, arguments);
}
