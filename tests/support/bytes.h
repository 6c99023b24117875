/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// The contents of messages under test. Tests are compiled without optimisation, and also for
// sanitizers. A loop over a message's bytes would then cost more than all the code that moves them.
// So bytes are generated as words, in blocks that no sanitizer instruments. memcpy and memcmp,
// which sanitizers do check, move them to and from the message.
#ifndef PVN_TESTS_SUPPORT_BYTES_H
#define PVN_TESTS_SUPPORT_BYTES_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bytes
{

constexpr size_t kBlock = 1024;

// The n-th block of the contents of `seed`: SplitMix64 of the word's number.
__attribute__((no_sanitize("address,thread,undefined"))) inline void block(uint64_t *words,
                                                                           uint64_t seed, size_t n)
{
    uint64_t at = seed * 0xd1342543de82ef95u + n * (kBlock / 8) * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < kBlock / 8; i++) {
        uint64_t z = at += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        words[i] = z ^ (z >> 31);
    }
}

inline void fill(void *to, size_t n, uint64_t seed)
{
    uint64_t words[kBlock / 8];
    for (size_t at = 0; at < n; at += kBlock) {
        block(words, seed, at / kBlock);
        memcpy(static_cast<uint8_t *>(to) + at, words, std::min(kBlock, n - at));
    }
}

// True if the n bytes at `in` are the first of the contents of `seed`.
inline bool are(const void *in, size_t n, uint64_t seed)
{
    uint64_t words[kBlock / 8];
    for (size_t at = 0; at < n; at += kBlock) {
        block(words, seed, at / kBlock);
        if (memcmp(static_cast<const uint8_t *>(in) + at, words, std::min(kBlock, n - at)) != 0)
            return false;
    }
    return true;
}

// True if both are equal, as by memcmp. Both may be null if n is 0.
inline bool same(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

// True if the n bytes at `in` all have this value.
inline bool all(const void *in, size_t n, uint8_t value)
{
    const uint8_t *p = static_cast<const uint8_t *>(in);
    return n == 0 || (p[0] == value && memcmp(p, p + 1, n - 1) == 0);
}

inline std::vector<uint8_t> of(size_t n, uint64_t seed)
{
    std::vector<uint8_t> v(n);
    fill(v.data(), n, seed);
    return v;
}

} // namespace bytes

#endif
