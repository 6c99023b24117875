// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Cuts the control connection at every message of a comm's life, in each direction and in each form
// (cutter.h): over each kind of lanes, while messages, receives, sends or nothing is open, with
// either end asleep, and with either end that closes first. And a second time, at each message that
// follows the first cut. Each life is a process of its own, and many run at once, because they
// mostly wait.
//
// The test runs a part of this product, chosen by a fixed seed. PVN_CONTROL_CUTS=N runs N times as
// many lives with one cut, 291 all of them, and more pairs, too. PVN_CONTROL_AT_ONCE=N runs N at
// once. PVN_CONTROL_LIFE="LANES OPEN CLOSES ASLEEP DIR AT FORM [DIR AT FORM]", as each life's line
// begins, runs one life and prints its log.
#include "fail/control_life.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

using namespace nccl;

namespace
{

enum { AT_ONCE = 24, MESSAGES_MAX = 128, LIFE_LIMIT_S = 150 };

// The result of a life, in memory that its process shares with the test.
struct Report {
    bool finished, ended;
    char wrong[512], log[24000];
    Cutter::Message fired[Cutter::CUTS];
    int count[2]; // messages by direction
    int after[2]; // of these, on connections that began after the first cut
    char names[1500];
    double seconds;
};

std::string text(const Plan &p)
{
    std::string s = std::to_string(p.lanes) + " " + std::to_string(p.open) + " " +
                    std::to_string(p.closes) + " " + std::to_string(p.asleep);
    for (const Cut &c : p.cut)
        if (c.at >= 0)
            s += " " + std::to_string(c.dir) + " " + std::to_string(c.at) + " " +
                 std::to_string(c.form);
    return s;
}

std::string name_of(const Cutter::Message &m)
{
    return m.conn < 0 ? "-"
                      : std::string(pvn_frame_name(m.type)) + (m.dir ? "< " : "> ") +
                            std::to_string(m.conn);
}

void live(const Plan &p, Report &r)
{
    const double begin = pvn_now_s();
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    setenv("NCCL_PVRDMA_VDEVICE", "1", 1);
    setenv("NCCL_PVRDMA_CONNECT_TIMEOUT", "2s", 1);
    setenv("NCCL_PVRDMA_ACCEPT_TIMEOUT", "2s", 1);
    setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "8s", 1);
    alarm(LIFE_LIMIT_S);
    ControlLife life(p);
    snprintf(r.wrong, sizeof(r.wrong), "%s", life.wrong.c_str());
    const std::string log = Log::get().text();
    snprintf(r.log, sizeof(r.log), "%s",
             log.substr(log.size() > sizeof(r.log) ? log.size() - sizeof(r.log) + 1 : 0).c_str());
    r.ended = life.ended;
    if (life.cutter) {
        std::string names;
        // The proxy may not have come to a cut of the last messages yet.
        for (int i = 0; i < Cutter::CUTS && p.cut[i].at >= 0; i++)
            eventually([&] { return life.cutter->fired(i).conn >= 0; }, 2);
        for (int i = 0; i < Cutter::CUTS; i++)
            r.fired[i] = life.cutter->fired(i);
        for (const Cutter::Message &m : life.cutter->messages()) {
            r.count[m.dir]++;
            r.after[m.dir] += r.fired[0].conn >= 0 && m.conn >= life.cutter->before_the_cut();
            names += name_of(m) + ", ";
        }
        snprintf(r.names, sizeof(r.names), "%s", names.c_str());
    }
    r.seconds = pvn_now_s() - begin;
    r.finished = true;
}

// The loss of the first connection before it is up ends the comm.
bool may_end(const Report &r)
{
    const int type = r.fired[0].type;
    return r.fired[0].conn == 0 &&
           (type == PVN_FRAME_HELLO || type == PVN_FRAME_OFFER || type == PVN_FRAME_READY);
}

class Lives
{
  public:
    // Runs these lives and expects each to be a proper one.
    explicit Lives(const std::vector<Plan> &plans)
        : plans_(plans), size_(sizeof(Report) * std::max<size_t>(plans.size(), 1))
    {
        void *m = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED)
            abort();
        report_ = static_cast<Report *>(m);
        const char *at_once = getenv("PVN_CONTROL_AT_ONCE");
        const size_t most = at_once ? atoi(at_once) : AT_ONCE;
        std::map<pid_t, size_t> running;
        for (size_t i = 0; i < plans.size() || !running.empty();) {
            if (i < plans.size() && running.size() < most) {
                fflush(nullptr);
                const pid_t pid = fork();
                if (pid == 0) {
                    live(plans[i], report_[i]);
                    fflush(nullptr);
                    _exit(testing::Test::HasFailure());
                }
                running[pid] = i++;
                continue;
            }
            int status = 0;
            const pid_t pid = wait(&status);
            check(running[pid], status);
            running.erase(pid);
        }
    }
    ~Lives()
    {
        munmap(report_, size_);
    }
    Lives(const Lives &) = delete;
    Lives &operator=(const Lives &) = delete;
    const Report &operator[](size_t i) const
    {
        return report_[i];
    }

  private:
    void check(size_t i, int status)
    {
        const Report &r = report_[i];
        const Plan &p = plans_[i];
        const std::string what =
            text(p) + ": " + name_of(r.fired[0]) + " " + name_of(r.fired[1]) + ": ";
        printf("%s%.1f s%s\n", what.c_str(), r.seconds, r.ended ? ", ended" : "");
        EXPECT_TRUE(r.finished && status == 0) << what << "status " << status;
        EXPECT_STREQ("", r.wrong) << what << "\n" << r.names << "\n" << r.log;
        // On a busy machine the uncut life may have had an attempt more.
        EXPECT_TRUE(p.cut[0].at < 0 || r.fired[0].conn >= 0 || r.count[p.cut[0].dir] <= p.cut[0].at)
            << what << "the fault has not fired: " << r.names;
        EXPECT_TRUE(!r.ended || may_end(r)) << what << "both ends have failed\n" << r.log;
    }

    const std::vector<Plan> plans_;
    const size_t size_;
    Report *report_;
};

// One of step() lives of the product is run.
int step(int usual)
{
    const char *times = getenv("PVN_CONTROL_CUTS");
    return times ? std::max(1, usual / std::max(1, atoi(times))) : usual;
}

// Lives without a cut, one for all that may change the number of messages
std::vector<Plan> whole()
{
    std::vector<Plan> plans;
    for (int lanes = 0; lanes < LANES; lanes++)
        // Nothing notices the loss of TCP's streams while nothing is open.
        for (int open = 0; open < (lanes < TCP_ALONE ? OPENS : NOTHING); open++)
            for (int closes = 0; closes < CLOSES; closes++)
                plans.push_back({lanes, open, closes, NOBODY, {}});
    return plans;
}

std::vector<Plan> with_one_cut(int every)
{
    static const std::vector<Plan> before = whole();
    static const Lives uncut(before);
    std::vector<Plan> plans;
    for (size_t i = 0; i < before.size(); i++) {
        printf("%s: %s\n", text(before[i]).c_str(), uncut[i].names);
        EXPECT_TRUE(strstr(uncut[i].names, "LANE_DOWN")) << "the lanes were not lost";
        EXPECT_TRUE(before[i].lanes >= TCP_ALONE || strstr(uncut[i].names, "SWITCH"));
        for (int dir = 0; dir < 2; dir++) {
            // Nobody reads the GOODBYE of the end that closes last.
            const int last = uncut[i].count[dir] - (dir == (before[i].closes == SENDER_FIRST));
            for (int at = 0; at < last; at++)
                for (int form = 0; form < FORMS; form++)
                    for (int asleep = 0; asleep < ASLEEPS; asleep++) {
                        Plan p = before[i];
                        p.asleep = asleep;
                        p.cut[0] = {dir, at, form};
                        plans.push_back(p);
                    }
        }
    }
    std::shuffle(plans.begin(), plans.end(), std::mt19937(1));
    plans.resize(plans.size() / every);
    return plans;
}

Plan plan_of(const char *life)
{
    Plan p = {};
    std::istringstream in(life);
    in >> p.lanes >> p.open >> p.closes >> p.asleep;
    for (Cut &c : p.cut) {
        Cut read;
        if (in >> read.dir >> read.at >> read.form)
            c = read;
    }
    return p;
}

TEST(ControlCuts, AtEachMessage)
{
    if (const char *life = getenv("PVN_CONTROL_LIFE")) {
        const Lives lives({plan_of(life)});
        printf("%s\n%s\n%.1f s\n", lives[0].log, lives[0].names, lives[0].seconds);
        return;
    }
    const std::vector<Plan> plans = with_one_cut(step(291));
    ASSERT_LT(30u, plans.size());
    std::set<int> asleep, form, dir;
    for (const Plan &p : plans) {
        asleep.insert(p.asleep);
        form.insert(p.cut[0].form);
        dir.insert(p.cut[0].dir);
    }
    EXPECT_EQ(size_t{ASLEEPS}, asleep.size());
    EXPECT_EQ(size_t{FORMS}, form.size());
    EXPECT_EQ(2u, dir.size());
    const Lives lives(plans);
    size_t fired = 0;
    for (size_t i = 0; i < plans.size(); i++)
        fired += lives[i].fired[0].conn >= 0;
    EXPECT_LT(plans.size() * 9 / 10, fired);
}

TEST(ControlCuts, AtAMessageAndAgainAfterIt)
{
    const std::vector<Plan> first = with_one_cut(step(1001));
    const Lives once(first);
    std::vector<Plan> plans;
    int n = 0;
    for (size_t i = 0; i < first.size(); i++)
        for (int dir = 0; dir < 2 && !once[i].ended; dir++)
            for (int at = 0; at < once[i].after[dir]; at++)
                for (int form = 0; form < FORMS; form++) {
                    Plan p = first[i];
                    p.cut[1] = {dir, at, form};
                    if (n++ % step(61) == 0)
                        plans.push_back(p);
                }
    const Lives twice(plans);
    size_t fired = 0;
    for (size_t i = 0; i < plans.size(); i++)
        fired += twice[i].fired[1].conn >= 0;
    printf("the second cut fired in %zu of %zu lives\n", fired, plans.size());
    EXPECT_LT(plans.size() / 2, fired);
}

} // namespace
