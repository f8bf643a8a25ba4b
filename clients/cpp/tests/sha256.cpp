// Prints the SHA-256 of so many bytes of standard input, for each number among its arguments.
#include "sha256.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

int main(int count, char **words) {
  const std::string bytes{std::istreambuf_iterator<char>(std::cin), {}};
  for (int word = 1; word < count; ++word)
    std::puts(policybridge::sha256(std::string_view(bytes).substr(0, std::strtoull(words[word], nullptr, 10))).c_str());
}
