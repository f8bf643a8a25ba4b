#include "sha256.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace policybridge {

namespace {

constexpr std::size_t block = 64;

using Words = std::array<std::uint32_t, 8>;

// FIPS 180-4, 4.2.2: of the cube roots of the first 64 primes the first 32 bits behind the point.
alignas(16) constexpr std::array<std::uint32_t, 64> constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotated(std::uint32_t word, int by) { return word >> by | word << (32 - by); }

std::uint32_t big_endian(const unsigned char *bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

std::array<std::uint32_t, 64> schedule(const unsigned char *bytes) {
  std::array<std::uint32_t, 64> words{};
  for (std::size_t n = 0; n < 16; ++n)
    words[n] = big_endian(bytes + 4 * n);
  for (std::size_t n = 16; n < 64; ++n) {
    const std::uint32_t early = words[n - 15], late = words[n - 2];
    words[n] = words[n - 16] + (rotated(early, 7) ^ rotated(early, 18) ^ early >> 3) + words[n - 7] +
               (rotated(late, 17) ^ rotated(late, 19) ^ late >> 10);
  }
  return words;
}

void compress(Words &state, const unsigned char *bytes) {
  const auto words = schedule(bytes);
  auto [a, b, c, d, e, f, g, h] = state;
  // The eight words are in the same registers again after eight rounds.
#pragma GCC unroll 8
  for (std::size_t n = 0; n < 64; ++n) {
    const std::uint32_t chosen = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t first =
        h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + chosen + constants[n] + words[n];
    const std::uint32_t second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + majority;
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Words added = {a, b, c, d, e, f, g, h};
  for (std::size_t n = 0; n < 8; ++n)
    state[n] += added[n];
}

void compress_all(Words &state, const unsigned char *bytes, std::size_t blocks) {
  for (std::size_t n = 0; n < blocks; ++n)
    compress(state, bytes + n * block);
}

#ifdef __x86_64__
/// Whether the processor has the instructions of `compress_by_processor`. A virtual machine takes 30 µs to answer, in which
/// 40 blocks are hashed without them.
bool ask_for_instructions() {
  constexpr unsigned sse41 = 1u << 19, sha = 1u << 29;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && c & sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & sha;
}

/// The same by the processor's own instructions, which take a fifth of the time: a form is hashed in each compile.
__attribute__((target("sha,sse4.1"))) void compress_by_processor(Words &words, const unsigned char *bytes,
                                                                 std::size_t blocks) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto *const state = reinterpret_cast<__m128i *>(words.data());
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(state), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(state + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; --blocks, bytes += block) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i message[4];
#pragma GCC unroll 16
    for (std::size_t four = 0; four < 16; ++four) {
      __m128i &next = message[four % 4];
      if (four < 4) {
        next = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes) + four), order);
      } else {
        const __m128i late = message[(four + 3) % 4];
        const __m128i middle = _mm_alignr_epi8(late, message[(four + 2) % 4], 4);
        next = _mm_add_epi32(_mm_sha256msg1_epu32(next, message[(four + 1) % 4]), middle);
        next = _mm_sha256msg2_epu32(next, late);
      }
      const auto *constant = reinterpret_cast<const __m128i *>(constants.data()) + four;
      const __m128i rounds = _mm_add_epi32(next, _mm_load_si128(constant));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, rounds);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(rounds, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(state + 1, _mm_alignr_epi8(dchg, feba, 8));
}
#endif

using Compress = void (*)(Words &, const unsigned char *, std::size_t);

/// How to hash further blocks. The processor is asked once in a process, when it has hashed enough of them.
Compress compress_for([[maybe_unused]] std::size_t blocks) {
#ifdef __x86_64__
  constexpr std::size_t enough = 64;
  static std::atomic<std::size_t> hashed{0};
  if (hashed.fetch_add(blocks, std::memory_order_relaxed) + blocks >= enough) {
    static const bool has_instructions = ask_for_instructions();
    if (has_instructions)
      return compress_by_processor;
  }
#endif
  return compress_all;
}

Words hash_of(std::string_view bytes) {
  const std::size_t whole = bytes.size() / block * block, rest = bytes.size() - whole;
  const std::size_t size = rest + 9 <= block ? block : 2 * block;
  const Compress compress_blocks = compress_for((whole + size) / block);
  Words state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
  compress_blocks(state, data, whole / block);
  unsigned char last[2 * block] = {};
  if (rest)
    std::memcpy(last, data + whole, rest);
  last[rest] = 0x80;
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (std::size_t n = 0; n < 8; ++n)
    last[size - 1 - n] = static_cast<unsigned char>(bits >> 8 * n);
  compress_blocks(state, last, size / block);
  return state;
}

} // namespace

std::string sha256(std::string_view bytes) {
  std::string text;
  for (const std::uint32_t word : hash_of(bytes))
    for (int shift = 28; shift >= 0; shift -= 4)
      text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

std::uint64_t sha256_head(std::string_view bytes) {
  const Words words = hash_of(bytes);
  return std::uint64_t{words[0]} << 32 | words[1];
}

} // namespace policybridge
