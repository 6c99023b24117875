// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Runs a fuzz target on its corpus, on truncated inputs and on mutations, without libFuzzer. If
 * an input fails, it is written to fuzz-crash.bin in the build directory, and its seed is
 * printed.
 *   PVN_FUZZ_RUNS   number of mutations (default 20000, fewer for a target that says so)
 *   PVN_FUZZ_SEED   seed of the first mutation (default 1); PVN_FUZZ_RUNS=1 with a printed seed
 *           repeats that input */
#include <gtest/gtest.h>

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "tests/support/paths.h"

#ifndef PVN_FUZZ_DEFAULT_RUNS
#define PVN_FUZZ_DEFAULT_RUNS 20000
#endif

namespace
{

using Bytes = std::vector<uint8_t>;

/* The current input, for the handler of a crash. */
const Bytes *current;
char current_name[128];

void on_abort(int sig)
{
    FILE *f = fopen(PVN_BUILDDIR "/fuzz-crash.bin", "wb");

    if (f && current) {
        fwrite(current->data(), 1, current->size(), f);
        fclose(f);
    }
    fprintf(stderr, "input: %s, saved as fuzz-crash.bin\n", current_name);
    signal(sig, SIG_DFL);
    raise(sig);
}

void run(const Bytes &input, const char *name)
{
    current = &input;
    snprintf(current_name, sizeof(current_name), "%s", name);
    /* A copy of exactly this size lets AddressSanitizer see a read past the end. */
    uint8_t *exact = static_cast<uint8_t *>(malloc(input.size() ? input.size() : 1));
    std::copy(input.begin(), input.end(), exact);
    EXPECT_EQ(0, LLVMFuzzerTestOneInput(exact, input.size()));
    free(exact);
    current = nullptr;
}

std::vector<std::pair<std::string, Bytes>> corpus()
{
    const std::string dir = PVN_SRCDIR "/tests/fuzz/corpus/" PVN_FUZZ_TARGET;
    std::vector<std::pair<std::string, Bytes>> files;
    DIR *d = opendir(dir.c_str());

    while (const dirent *e = d ? readdir(d) : nullptr) {
        std::ifstream f(dir + "/" + e->d_name, std::ios::binary);
        if (e->d_name[0] != '.')
            files.emplace_back(e->d_name, Bytes(std::istreambuf_iterator<char>(f), {}));
    }
    if (d)
        closedir(d);
    std::sort(files.begin(), files.end());
    return files;
}

long number(const char *name, long fallback)
{
    const char *s = getenv(name);

    return s && *s ? atol(s) : fallback;
}

/* Bytes with a meaning in texts or in C. */
const char special_bytes[] = "\n =,:^-0919%[]/kMGsx\xff";

Bytes mutate(const std::vector<std::pair<std::string, Bytes>> &files, unsigned seed)
{
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return n ? random() % n : 0; };
    Bytes out = files[pick(files.size())].second;
    const unsigned changes = 1 + random() % 8;

    for (unsigned i = 0; i < changes; i++) {
        const size_t at = pick(out.size() + 1);
        switch (random() % 7) {
        case 0: /* flip a bit */
            if (at < out.size())
                out[at] ^= (uint8_t)(1u << (random() % 8));
            break;
        case 1: /* change a byte, often to one with a meaning */
            if (at < out.size()) {
                /* The variable is needed because GCC 12's UBSan evaluates a call inside an index
                 * twice. */
                const size_t special = random() % sizeof(special_bytes);
                out[at] = random() % 2 ? (uint8_t)random() : (uint8_t)special_bytes[special];
            }
            break;
        case 2: /* remove a part */
            out.erase(out.begin() + (long)at,
                      out.begin() + (long)std::min(out.size(), at + pick(16)));
            break;
        case 3: /* insert */
            out.insert(out.begin() + (long)at, 1 + pick(8), (uint8_t)random());
            break;
        case 4: /* repeat a part */
        {
            const Bytes part(out.begin() + (long)at,
                             out.begin() + (long)std::min(out.size(), at + pick(64)));
            out.insert(out.end(), part.begin(), part.end());
            break;
        }
        case 5: /* copy a part of another file */
        {
            const Bytes &other = files[pick(files.size())].second;
            const size_t from = pick(other.size());
            const size_t to = std::min(other.size(), from + pick(64));
            out.insert(out.begin() + (long)at, other.begin() + (long)from,
                       other.begin() + (long)to);
            break;
        }
        default: /* remove the end */
            out.resize(at);
            break;
        }
    }
    return out;
}

TEST(Fuzz, TheCorpusWholeAndCutIsSurvived)
{
    const auto files = corpus();

    ASSERT_FALSE(files.empty()) << "no corpus for " PVN_FUZZ_TARGET;
    for (const auto &f : files) {
        run(f.second, f.first.c_str());
        for (size_t n = 0; n < std::min<size_t>(f.second.size(), 256); n++)
            run(Bytes(f.second.begin(), f.second.begin() + (long)n), (f.first + ", cut").c_str());
    }
    run({}, "nothing");
}

TEST(Fuzz, ChangedCorpusIsSurvived)
{
    const auto files = corpus();
    const long runs = number("PVN_FUZZ_RUNS", PVN_FUZZ_DEFAULT_RUNS),
               first = number("PVN_FUZZ_SEED", 1);

    ASSERT_FALSE(files.empty());
    for (long i = 0; i < runs; i++)
        run(mutate(files, (unsigned)(first + i)),
            ("PVN_FUZZ_SEED=" + std::to_string(first + i)).c_str());
}

} // namespace

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_set_death_callback(void (*callback)(void));
#endif

int main(int argc, char **argv)
{
    ::testing::InitGoogleTest(&argc, argv);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback([] { on_abort(SIGABRT); });
#endif
    for (int sig : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE})
        signal(sig, on_abort);
    return RUN_ALL_TESTS();
}
