// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
}

namespace
{

uint64_t fake_now_ns;

uint64_t fake_clock()
{
    return fake_now_ns;
}

class Log : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        fake_now_ns = 1000 * PVN_NS_PER_S;
        pvn_log_set_clock(fake_clock);
        pvn_log_set_capture(
            [](void *arg, pvn_log_level level, unsigned long fl, const char *file, int,
               const char *text) {
                auto *self = static_cast<Log *>(arg);
                self->lines.push_back(text);
                self->levels.push_back(level);
                self->flags.push_back(fl);
                self->files.push_back(file);
            },
            this);
    }

    void TearDown() override
    {
        pvn_log_set_capture(nullptr, nullptr);
        pvn_log_set_clock(nullptr);
        pvn_log_set_logger(nullptr);
        pvn_log_set_level(PVN_LOG_NONE);
    }

    std::vector<std::string> lines;
    std::vector<pvn_log_level> levels;
    std::vector<unsigned long> flags;
    std::vector<std::string> files;
};

void warn_here(int number)
{
    pvn_warn("trouble %d", number);
}

TEST_F(Log, CarriesLevelFlagsAndFile)
{
    pvn_info(PVN_NET | PVN_INIT, "hello %s", "there");
    pvn_warn("oops");
    EXPECT_EQ((std::vector<std::string>{"hello there", "oops"}), lines);
    EXPECT_EQ((std::vector<pvn_log_level>{PVN_LOG_INFO, PVN_LOG_WARN}), levels);
    EXPECT_EQ(PVN_NET | PVN_INIT, flags[0]);
    EXPECT_EQ("test_log.cc", files[0]) << "no path of the build machine";
}

TEST_F(Log, TraceCostsNothingWhenOff)
{
    int evaluated = 0;

    pvn_log_set_level(PVN_LOG_INFO);
    pvn_trace(PVN_NET, "x %d", ++evaluated);
    EXPECT_EQ(0, evaluated) << "arguments are not even computed";
    pvn_log_set_level(PVN_LOG_TRACE);
    pvn_trace(PVN_NET, "x %d", ++evaluated);
    EXPECT_EQ(1, evaluated);
    EXPECT_EQ((std::vector<std::string>{"x 1"}), lines);
}

TEST_F(Log, SameWarningIsFoldedAndCounted)
{
    for (int i = 0; i < 43; i++)
        warn_here(7);
    EXPECT_EQ((std::vector<std::string>{"trouble 7"}), lines);
    fake_now_ns += PVN_LOG_FOLD_NS;
    pvn_info(PVN_NET, "any other message brings it out");
    ASSERT_EQ(3u, lines.size());
    EXPECT_EQ("42 more in 10 s like: trouble 7", lines[1]);
    EXPECT_EQ(PVN_LOG_WARN, levels[1]);
}

TEST_F(Log, DifferentTextsOfOneSiteAreLimited)
{
    for (int i = 0; i < PVN_LOG_FOLD_TEXTS + 5; i++)
        warn_here(i);
    EXPECT_EQ((size_t)PVN_LOG_FOLD_TEXTS, lines.size());
    fake_now_ns += PVN_LOG_FOLD_NS;
    warn_here(100);
    ASSERT_EQ((size_t)PVN_LOG_FOLD_TEXTS + 2, lines.size());
    EXPECT_EQ("5 more in 10 s like: trouble 8", lines[PVN_LOG_FOLD_TEXTS]);
    EXPECT_EQ("trouble 100", lines.back());
}

TEST_F(Log, WindowStartsAgainWhenItIsOver)
{
    warn_here(1);
    fake_now_ns += PVN_LOG_FOLD_NS - 1;
    warn_here(1);
    EXPECT_EQ(1u, lines.size());
    fake_now_ns += 1;
    warn_here(1);
    ASSERT_EQ(3u, lines.size());
    EXPECT_EQ("1 more in 10 s like: trouble 1", lines[1]);
    EXPECT_EQ("trouble 1", lines[2]);
}

// A thread may have read the clock before another thread opened the window.
TEST_F(Log, WindowIsNotOverForACallThatBeganBeforeIt)
{
    warn_here(1);
    warn_here(1);
    fake_now_ns -= PVN_NS_PER_MS;
    warn_here(1);
    pvn_log_flush(0);
    EXPECT_EQ((std::vector<std::string>{"trouble 1"}), lines);
}

TEST_F(Log, OtherSitesAreNotAffected)
{
    warn_here(1);
    warn_here(1);
    pvn_warn("trouble 1");
    EXPECT_EQ(2u, lines.size());
}

TEST_F(Log, FlushReportsWhatIsHeld)
{
    warn_here(1);
    warn_here(1);
    pvn_log_flush(0);
    EXPECT_EQ(1u, lines.size()) << "its time is not over";
    pvn_log_flush(1);
    ASSERT_EQ(2u, lines.size());
    EXPECT_EQ("1 more in 0 s like: trouble 1", lines[1]);
    pvn_log_flush(1);
    EXPECT_EQ(2u, lines.size());
}

/* There are more sites than the table has rows. The one that was idle longest is dropped, but
 * its held count is reported. */
TEST_F(Log, ManySitesLoseNoCount)
{
    warn_here(1);
    warn_here(1);
    for (int line = 0; line < 200; line++) {
        fake_now_ns++;
        pvn_log_write(PVN_LOG_WARN, PVN_ALL, "other.c", line, "site %d", line);
    }
    int summaries = 0;
    for (const auto &l : lines)
        summaries += l == "1 more in 0 s like: trouble 1";
    EXPECT_EQ(1, summaries);
    EXPECT_EQ(202u, lines.size());
}

TEST_F(Log, InfoIsNeverFolded)
{
    for (int i = 0; i < 20; i++)
        pvn_info(PVN_NET, "same");
    EXPECT_EQ(20u, lines.size());
}

TEST_F(Log, OverlongMessageIsCutNotOverrun)
{
    const std::string big(3 * PVN_LOG_LINE, 'y');

    pvn_info(PVN_NET, "%s", big.c_str());
    EXPECT_EQ((size_t)PVN_LOG_LINE - 1, lines[0].size());
}

TEST_F(Log, ErrorIsOneLineUnlessNcclWouldCutIt)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -ECONNREFUSED, "dialling");
    pvn_err_set_hint(&err, PVN_HINT_REFUSED);
    pvn_warn_err(&err);
    ASSERT_EQ(1u, lines.size());
    EXPECT_NE(std::string::npos, lines[0].find("; try: "));

    pvn_err_set(&err, -ECONNREFUSED, "%s", std::string(310, 'x').c_str());
    pvn_err_add(&err, "%s", std::string(310, 'y').c_str());
    pvn_err_set_hint(&err, PVN_HINT_REFUSED);
    pvn_warn_err(&err);
    ASSERT_EQ(3u, lines.size());
    EXPECT_EQ(std::string::npos, lines[1].find("try: "));
    EXPECT_EQ(0u, lines[2].find("likely: nothing listens"));
}

std::string logger_text;

void fake_nccl_logger(pvn_log_level level, unsigned long flags, const char *file, int line,
                      const char *fmt, ...)
{
    char buf[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    logger_text +=
        std::to_string(level) + " " + std::to_string(flags) + " " + file + " " + buf + "\n";
}

TEST_F(Log, GoesToNcclsLogger)
{
    pvn_log_set_capture(nullptr, nullptr);
    pvn_log_set_logger(fake_nccl_logger);
    logger_text.clear();
    pvn_info(PVN_NET, "100%% of %s", "%s%n");
    EXPECT_EQ("3 16 test_log.cc NET/PVRDMA : 100% of %s%n\n", logger_text);
    EXPECT_TRUE(pvn_log_enabled(PVN_LOG_INFO));
    EXPECT_TRUE(lines.empty());
}

/* Returns the output of a child process to stderr with these settings, before it has a logger. */
std::string child_stderr(const char *debug, const char *subsys)
{
    int fds[2];

    EXPECT_EQ(0, pipe(fds));
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 2);
        if (debug)
            setenv("NCCL_DEBUG", debug, 1);
        else
            unsetenv("NCCL_DEBUG");
        if (subsys)
            setenv("NCCL_DEBUG_SUBSYS", subsys, 1);
        else
            unsetenv("NCCL_DEBUG_SUBSYS");
        execl("/proc/self/exe", "test_log", "--print", static_cast<char *>(nullptr));
        _exit(127);
    }
    close(fds[1]);
    std::string out;
    char buf[256];
    for (ssize_t n; (n = read(fds[0], buf, sizeof(buf))) > 0;)
        out.append(buf, (size_t)n);
    close(fds[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(0, status);
    return out;
}

void print_one_of_each()
{
    pvn_warn("a warning");
    pvn_info(PVN_NET, "net info");
    pvn_info(PVN_REG, "reg info");
    pvn_log_set_logger(nullptr); /* NCCL's init decides about tracing */
    pvn_trace(PVN_NET, "a trace");
}

bool has(const std::string &text, const char *what)
{
    return text.find(what) != std::string::npos;
}

TEST(LogStderr, FollowsNcclDebug)
{
    std::string out = child_stderr(nullptr, nullptr);
    EXPECT_EQ("", out);
    EXPECT_EQ("", child_stderr("nonsense", nullptr));

    out = child_stderr("WARN", nullptr);
    EXPECT_TRUE(has(out, "NET/PVRDMA : WARN a warning\n")) << out;
    EXPECT_FALSE(has(out, "info")) << out;

    out = child_stderr("info", nullptr);
    EXPECT_TRUE(has(out, "INFO net info")) << out;
    EXPECT_FALSE(has(out, "reg info")) << out;
    EXPECT_FALSE(has(out, "a trace")) << out;

    out = child_stderr("TRACE", "NET,REG");
    EXPECT_TRUE(has(out, "reg info") && has(out, "net info") && has(out, "TRACE a trace")) << out;

    out = child_stderr("INFO", "^NET");
    EXPECT_TRUE(has(out, "reg info") && !has(out, "net info") && has(out, "a warning")) << out;
}

TEST(LogThreads, NothingIsLostWithoutFolding)
{
    static std::atomic<int> count;

    count = 0;
    pvn_log_set_capture(
        [](void *, pvn_log_level, unsigned long, const char *, int, const char *) { count++; },
        nullptr);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([t] {
            for (int i = 0; i < 500; i++) {
                pvn_info(PVN_NET, "thread %d message %d", t, i);
                pvn_log_write(PVN_LOG_WARN, PVN_ALL, "threads.c", t * 1000 + i % 30, "w %d", t);
            }
        });
    for (auto &t : threads)
        t.join();
    pvn_log_set_capture(nullptr, nullptr);
    EXPECT_GE(count, 4 * 500 + 4 * 30);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && std::string(argv[1]) == "--print") {
        print_one_of_each();
        return 0;
    }
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
