// Decides by a form, for tests/native/library/test_form.py: the form's file is the argument; observations come on standard
// input; each gives on standard output its outcome, a byte, its scores, and its advice. With a number of rounds as the second
// argument it decides about all of them so often and prints the nanoseconds of one decision of the fastest round. With an
// exploration as the second argument it draws the advices, and gives the log-probability, a float, behind each.
#include "policybridge/form.h"
#include "policybridge/session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

using namespace policybridge;

namespace {

std::string all_of(std::istream &stream) { return {std::istreambuf_iterator<char>(stream), {}}; }

/// Decide about each observation; give the outcomes, scores and advices.
std::string decide(const Form &form, const std::string &observations, const Exploration *exploration) {
  FormEvaluator evaluator(form);
  const std::size_t size = form.observation_size();
  std::vector<char> advice(static_cast<std::size_t>(form.advice().byte_size()));
  std::string made;
  std::uint64_t number = 0;
  for (std::size_t at = 0; at + size <= observations.size(); at += size) {
    std::memcpy(evaluator.observation(), observations.data() + at, size);
    std::fill(advice.begin(), advice.end(), char{0});
    float chance = 0;
    made += static_cast<char>(exploration ? evaluator.draw(*exploration, ++number, advice.data(), chance)
                                          : evaluator.evaluate(advice.data()));
    made.append(static_cast<const char *>(evaluator.scores()), form.score_count() * element_size(form.score_type()));
    made.append(advice.data(), advice.size());
    if (exploration)
      made.append(reinterpret_cast<const char *>(&chance), sizeof chance);
  }
  return made;
}

double nanoseconds(const Form &form, const std::string &observations, int rounds) {
  FormEvaluator evaluator(form);
  const std::size_t size = form.observation_size();
  std::vector<char> advice(static_cast<std::size_t>(form.advice().byte_size()));
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto begun = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at + size <= observations.size(); at += size) {
      std::memcpy(evaluator.observation(), observations.data() + at, size);
      static_cast<void>(evaluator.evaluate(advice.data()));
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begun;
    times.push_back(taken.count() / static_cast<double>(observations.size() / size));
  }
  return *std::min_element(times.begin(), times.end());
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const Result<Form> form = Form::read(all_of(file));
  if (!form.ok()) {
    std::cerr << form.status().message() << '\n';
    return 1;
  }
  const std::string observations = all_of(std::cin);
  if (argc > 2 && std::strchr(argv[2], '=')) {
    const Result<Exploration> exploration = Exploration::parse(argv[2]);
    if (!exploration.ok())
      return 2;
    std::cout << decide(*form, observations, &*exploration);
  } else if (argc > 2)
    std::printf("%.1f\n", nanoseconds(*form, observations, std::max(std::atoi(argv[2]), 1)));
  else
    std::cout << decide(*form, observations, nullptr);
  return 0;
}
