// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A rank that is late for longer than every limit, in every state of a comm. The job goes on when
// the rank comes back, and each byte is right. Over TCP the rank's process is stopped by SIGSTOP,
// while its kernel goes on answering. A real adapter would go on as well; but softverbs is part of
// the process, so over RDMA only the rank's thread sleeps.
//
// A case has two processes in network namespaces of their own, which nobody else sees and which end
// with them. A rank stops itself where its script says so, and its parent continues it. Several
// cases run at once, because each mostly waits.
#include "fail/late_rank.h"
#include "support/netns.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <fstream>
#include <iterator>
#include <map>

using namespace nccl;

namespace
{

enum class Net_ { TCP, TWO_LINKS, RDMA };
using Settings = std::vector<std::pair<const char *, const char *>>;

// Every limit that runs while a peer makes no call. A rank is away for several times as long.
const Settings limits = {
    {"CONNECT_TIMEOUT", "1s"},  {"HELLO_TIMEOUT", "1s"},    {"OFFER_TIMEOUT", "1s"},
    {"BIND_TIMEOUT", "1s"},     {"VERIFY_TIMEOUT", "1s"},   {"READY_TIMEOUT", "1s"},
    {"TCP_USER_TIMEOUT", "1s"}, {"KEEPALIVE_IDLE", "1s"},   {"KEEPALIVE_INTVL", "1s"},
    {"KEEPALIVE_CNT", "2"},     {"FAILOVER_TIMEOUT", "1s"}, {"STALL_WARN", "1s"}};
constexpr int AWAY_MS = 4000;

struct Case {
    const char *name;
    Net_ net;
    Settings settings;
    void (*sender)(Rank &);
    void (*receiver)(Rank &);
    int stops;         // of both processes together
    const char *said;  // one end logs this; nullptr: nothing is expected
    const char *never; // neither end logs this
    int away_ms = AWAY_MS;
};

std::ostream &operator<<(std::ostream &o, const Case &c)
{
    return o << c.name;
}

constexpr size_t LARGE = 4 << 20;

void plain(Rank &r)
{
    r.up();
    r.transfer(20, 100000);
}
// Sends enough to fill the windows, while the receiver is away before it has posted a receive.
void sends_much(Rank &r)
{
    r.up();
    r.transfer(8, LARGE);
    r.transfer(20, 1000);
}
void is_away_before_receives(Rank &r)
{
    r.up();
    r.away();
    r.transfer(8, LARGE);
    r.transfer(20, 1000);
}
void is_away_while_it_sends(Rank &r)
{
    r.up();
    r.transfer(8, LARGE, [&] { r.away(); });
    r.transfer(20, 1000);
}
void receives_much(Rank &r)
{
    r.up();
    r.transfer(8, LARGE);
    r.transfer(20, 1000);
}
void is_idle(Rank &r)
{
    r.up();
    r.transfer(4, 1000);
    r.tell();
    r.hear();
    r.transfer(4, 1000);
}
void is_away_when_idle(Rank &r)
{
    r.up();
    r.transfer(4, 1000);
    r.hear();
    r.away();
    r.tell();
    r.transfer(4, 1000);
}
// The other end waits in receives, or in sends whose receives are posted.
void is_away_while_the_other_waits(Rank &r)
{
    r.up();
    r.transfer(4, 1000);
    r.away();
    r.transfer(4, 1000);
}
void waits(Rank &r)
{
    r.up();
    r.transfer(4, 1000);
    r.transfer(4, 1000);
}
// The last messages are still in this end's kernel when it closes.
void sends_and_closes(Rank &r)
{
    r.up();
    r.transfer(3, 1000000);
    r.close();
    Rank::end(true, "closed");
}
void is_away_before_the_last(Rank &r)
{
    r.up();
    r.away();
    r.transfer(3, 1000000);
}
void calls_late(Rank &r)
{
    r.begin();
    r.away();
    while (!r.call())
        ;
    r.transfer(20, 100000);
}
void stops_in_the_set_up(Rank &r)
{
    r.up({0, 3, 20});
    r.transfer(20, 100000);
}
void stops_once_in_the_set_up(Rank &r)
{
    r.up({3});
    r.transfer(20, 100000);
}

void stops_behind_its_first_call(Rank &r)
{
    r.up({0});
    r.transfer(20, 100000);
}

// The kernel of the other end gives up all connections within 6 s, because of keepalive.
template <int MS> void loses_its_link_and_is_away(Rank &r)
{
    r.up();
    r.transfer(8, 100000);
    r.lose_link(std::to_string(MS / 1000.0));
    r.transfer(20, LARGE, [&] { r.away(); });
}
// The lanes of this port fail within the first second.
void loses_its_port_and_is_away(Rank &r)
{
    r.up();
    r.transfer(8, 100000);
    r.lose_link("4");
    r.away_at = "failover:";
    r.transfer(20, LARGE);
    Rank::check(!r.away_at, "there was no failover");
}
void has_an_end_that_loses_its_link(Rank &r)
{
    r.up();
    r.transfer(8, 100000);
    r.transfer(20, LARGE);
}
// The last message is short, so its send completes although the link is down already. Then nobody
// calls for longer than the link is down.
void sends_one_and_sleeps(Rank &r)
{
    r.up();
    r.transfer(8, 100000);
    r.lose_link("8");
    r.transfer(1, 1000);
    std::this_thread::sleep_for(std::chrono::seconds(10));
    r.transfer(20, 100000);
}
void sleeps_and_receives_it(Rank &r)
{
    r.up();
    r.transfer(8, 100000);
    std::this_thread::sleep_for(std::chrono::seconds(10));
    r.transfer(1, 1000);
    r.transfer(20, 100000);
}
// The counterpart: a dead path is detected although a peer that is away would be waited for.
void has_an_end_that_dies(Rank &r)
{
    Rank::ends = true;
    r.up();
    r.transfer(8, LARGE, [&] { r.tell(); });
    Rank::end(false, "no error");
}
void dies_before_it_accepts(Rank &r)
{
    r.begin();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    r.die();
}
void dies_when_up(Rank &r)
{
    r.up();
    r.hear(); // messages are being sent: the window closes within the second
    std::this_thread::sleep_for(std::chrono::seconds(1));
    r.die();
}
// The comm first moves to the other link, or to TCP. Then this rank is away when the comm is about
// to return to the first link.
void returns_to_its_link(Rank &r)
{
    using clock = std::chrono::steady_clock;
    clock::time_point since = {};
    bool was_away = false, back = false;
    r.up();
    r.transfer(8, 100000);
    r.lose_link(r.rdma ? "7" : "4");
    while (!back) {
        if (since == clock::time_point() && said("connected again after"))
            since = clock::now();
        const bool now = !was_away && since != clock::time_point() &&
                         clock::now() - since > std::chrono::milliseconds(2500);
        r.transfer(8, 100000, now ? [&] { r.away(); } : std::function<void()>());
        was_away |= now;
        back = was_away && said("returned after");
        r.tell(back ? 'e' : 'x');
    }
}
void has_an_end_that_returns(Rank &r)
{
    r.up();
    r.transfer(8, 100000);
    do
        r.transfer(8, 100000);
    while (r.hear() != 'e');
}

#define TCP(name, sender, receiver, stops, said)                                                   \
    {                                                                                              \
        name, Net_::TCP, {{"FAILOVER", "0"}}, sender, receiver, stops, said, nullptr               \
    }
#define RDMA(name, mode, sender, receiver, said)                                                   \
    {                                                                                              \
        "rdma_" mode "_" name, Net_::RDMA, {{"RDMA_MODE", mode}, {"IB_TIMEOUT", "14"}}, sender,    \
            receiver, 0, said, "failover:"                                                         \
    }
#define RDMA_LOST(name, mode, transport, sender, receiver, said)                                   \
    {                                                                                              \
        "rdma_" mode "_" name, Net_::RDMA,                                                         \
            {{"RDMA_MODE", mode},                                                                  \
             {"IB_TIMEOUT", "14"},                                                                 \
             {"TRANSPORT", transport},                                                             \
             {"FAILOVER", "1"},                                                                    \
             {"FAILOVER_TIMEOUT", "3s"}},                                                          \
            sender, receiver, 0, said, nullptr                                                     \
    }
#define RDMA_CASES(mode)                                                                           \
    RDMA("connecting_the_acceptor_is_away", mode, plain, calls_late, nullptr),                     \
        RDMA("connecting_the_connector_is_away", mode, stops_behind_its_first_call, plain,         \
             nullptr),                                                                             \
        RDMA("handshake_the_acceptor_is_away", mode, plain, stops_once_in_the_set_up, nullptr),    \
        RDMA("handshake_the_connector_is_away", mode, stops_once_in_the_set_up, plain, nullptr),   \
        RDMA("idle", mode, is_idle, is_away_when_idle, nullptr),                                   \
        RDMA("sender_waits", mode, sends_much, is_away_before_receives, nullptr),                  \
        RDMA("receiver_waits", mode, is_away_while_the_other_waits, waits, STALLED),               \
        RDMA("closing", mode, sends_and_closes, is_away_before_the_last, nullptr),                 \
        RDMA_LOST("failover_the_receiver_is_away", mode, "rdma", has_an_end_that_loses_its_link,   \
                  loses_its_port_and_is_away, "connected again after"),                            \
        RDMA_LOST("failover_the_sender_is_away", mode, "rdma", loses_its_port_and_is_away,         \
                  has_an_end_that_loses_its_link, "connected again after"),                        \
        RDMA_LOST("failback_the_receiver_is_away", mode, "auto", has_an_end_that_returns,          \
                  returns_to_its_link, "returned after"),                                          \
        RDMA_LOST("failback_the_sender_is_away", mode, "auto", returns_to_its_link,                \
                  has_an_end_that_returns, "returned after")

const Case cases[] = {
    TCP("connecting_the_acceptor_is_away", plain, calls_late, 1, nullptr),
    TCP("connecting_the_connector_is_away", stops_behind_its_first_call, plain, 1, nullptr),
    TCP("handshake_the_acceptor_is_away", plain, stops_in_the_set_up, 1, nullptr),
    TCP("handshake_the_connector_is_away", stops_in_the_set_up, plain, 1, nullptr),
    TCP("idle_the_receiver_is_away", is_idle, is_away_when_idle, 1, nullptr),
    TCP("idle_the_sender_is_away", is_away_when_idle, is_idle, 1, nullptr),
    TCP("receiving", is_away_while_the_other_waits, waits, 1, STALLED),
    TCP("sending", sends_much, is_away_before_receives, 1, STALLED),
    TCP("sending_and_stopped", is_away_while_it_sends, receives_much, 1, nullptr),
    TCP("closing", sends_and_closes, is_away_before_the_last, 1, nullptr),
    {"sending_by_threads",
     Net_::TCP,
     {{"FAILOVER", "0"}, {"TCP_THREADS", "2"}, {"TCP_STREAMS", "2"}},
     sends_much,
     is_away_before_receives,
     1,
     "copied by 2 threads",
     nullptr},
    {"sending_with_failover",
     Net_::TCP,
     {{"FAILOVER", "1"}},
     sends_much,
     is_away_before_receives,
     1,
     STALLED,
     "failover:"},
    {"sending_with_another_link",
     Net_::TWO_LINKS,
     {},
     sends_much,
     is_away_before_receives,
     1,
     STALLED,
     "failover:"},
    {"receiving_with_another_link",
     Net_::TWO_LINKS,
     {},
     is_away_while_the_other_waits,
     waits,
     1,
     STALLED,
     "failover:"},
    {"closing_with_another_link",
     Net_::TWO_LINKS,
     {},
     sends_and_closes,
     is_away_before_the_last,
     1,
     nullptr,
     "failover:"},
    // This end sends many keepalive probes: with few, on a machine that stands still for a second
    // or two, the kernel would notice the dead path first.
    {"dead_while_connecting",
     Net_::TCP,
     {{"FAILOVER", "0"}, {"KEEPALIVE_CNT", "20"}},
     has_an_end_that_dies,
     dies_before_it_accepts,
     0,
     "control connection: the peer's machine has acknowledged nothing for",
     nullptr},
    // Either the data connection or the control connection notices it first.
    TCP("dead_with_a_closed_window", has_an_end_that_dies, dies_when_up, 0, "acknowledge"),
    TCP("dead_while_receiving", dies_when_up, has_an_end_that_dies, 0, "Connection timed out"),
    {"failover_the_receiver_is_away",
     Net_::TCP,
     {{"FAILOVER", "1"}, {"FAILOVER_TIMEOUT", "3s"}},
     has_an_end_that_loses_its_link,
     loses_its_link_and_is_away<2500>,
     1,
     "connected again after",
     nullptr,
     8000},
    {"failover_to_another_link_the_receiver_is_away",
     Net_::TWO_LINKS,
     {{"FAILOVER_TIMEOUT", "3s"}},
     has_an_end_that_loses_its_link,
     loses_its_link_and_is_away<2500>,
     1,
     "connected again after",
     nullptr,
     8000},
    {"failover_the_sender_is_away",
     Net_::TCP,
     {{"FAILOVER", "1"}, {"FAILOVER_TIMEOUT", "10s"}},
     loses_its_link_and_is_away<6000>,
     has_an_end_that_loses_its_link,
     1,
     "connected again after",
     nullptr,
     20000},
    {"failover_while_nobody_calls",
     Net_::TCP,
     {{"FAILOVER", "1"}, {"FAILOVER_TIMEOUT", "3s"}},
     sends_one_and_sleeps,
     sleeps_and_receives_it,
     0,
     "connected again after",
     "no new connection within"},
    {"failover_to_another_link_the_sender_is_away",
     Net_::TWO_LINKS,
     {{"FAILOVER_TIMEOUT", "10s"}},
     loses_its_link_and_is_away<6000>,
     has_an_end_that_loses_its_link,
     1,
     "connected again after",
     nullptr,
     20000},
    {"failback_the_receiver_is_away",
     Net_::TWO_LINKS,
     {{"FAILOVER_TIMEOUT", "3s"}},
     has_an_end_that_returns,
     returns_to_its_link,
     1,
     "returned after",
     nullptr,
     8000},
    {"failback_the_sender_is_away",
     Net_::TWO_LINKS,
     {{"FAILOVER_TIMEOUT", "3s"}},
     returns_to_its_link,
     has_an_end_that_returns,
     1,
     "returned after",
     nullptr,
     8000},
    RDMA_CASES("record"),
    RDMA_CASES("imm"),
    RDMA_CASES("send"),
};

std::string run(const char *format, int a, int b = 0)
{
    char text[400];
    snprintf(text, sizeof(text), format, a, b, a, a, a);
    return text;
}

// The parent process of the two ranks.
class Parent
{
  public:
    explicit Parent(const Case &c) : c_(c)
    {
    }

    [[noreturn]] void run_case()
    {
        char dir[] = "/tmp/pvn-late.XXXXXX";
        int a[2], b[2], go[2], ready[2];
        alarm(90);
        if (!mkdtemp(dir) || unshare(CLONE_NEWNET) != 0 || pipe(a) || pipe(b) || pipe(go) ||
            pipe(ready))
            finish(77, dir);
        settings(dir);
        if (c_.said == STALLED) {
            void *shared = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (shared == MAP_FAILED)
                finish(77, dir);
            stalled_ = new (shared) Seen(false);
        }
        const pid_t r = rank(true, b, a, go[0], ready[1]);
        const pid_t s = rank(false, a, b, go[0], ready[1]);
        char text[2];
        if (read(ready[0], text, 1) != 1 || read(ready[0], text, 1) != 1 || !join(r) ||
            write(go[1], "xx", 2) != 2)
            finish(77, dir);
        for (int fd : {a[0], a[1], b[0], b[1], go[0], go[1]})
            ::close(fd);
        const bool good = wait_for(r, s);
        if (good && stops_ < c_.stops)
            printf("FAILED: stopped %d times\n", stops_);
        finish(good && stops_ >= c_.stops ? 0 : 1, dir);
    }

  private:
    [[noreturn]] static void finish(int status, const char *dir)
    {
        fflush(stdout);
        pvn_test::sh(std::string("rm -rf ") + dir);
        _exit(status);
    }
    void settings(const std::string &dir) const
    {
        const bool rdma = c_.net == Net_::RDMA;
        setenv("NCCL_SOCKET_IFNAME", rdma ? "lo" : "v", 1);
        setenv("NCCL_PVRDMA_TRANSPORT", rdma ? "rdma" : "tcp", 1);
        for (const Settings *list : {&limits, &c_.settings})
            for (const auto &s : *list)
                setenv((std::string("NCCL_PVRDMA_") + s.first).c_str(), s.second, 1);
        if (!rdma)
            return;
        const std::string mode = c_.settings[0].second;
        pvn_test::sh("ip link set lo up; mkdir " + dir + "/fabric " + dir + "/sys");
        setenv("NCCL_PVRDMA_VERBS_LIB", SOFTVERBS, 1);
        setenv("PVN_SOFTVERBS_PROFILE", mode == "imm" ? "roce" : "pvrdma", 1);
        setenv("PVN_SOFTVERBS_DIR", (dir + "/fabric").c_str(), 1);
        setenv("PVN_SOFTVERBS_SYSFS", (dir + "/sys").c_str(), 1);
        setenv("NCCL_PVRDMA_SYSFS_ROOT", (dir + "/sys").c_str(), 1);
    }
    pid_t rank(bool receives, const int *in, const int *out, int go, int ready) const
    {
        const pid_t pid = fork();
        char text;
        if (pid)
            return pid;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(in[1]);
        ::close(out[0]);
        signal(SIGALRM, Rank::too_late);
        alarm(60);
        if (receives && c_.net != Net_::RDMA && unshare(CLONE_NEWNET) != 0)
            _exit(77);
        if (write(ready, "x", 1) != 1 || read(go, &text, 1) != 1)
            _exit(77);
        if (c_.net != Net_::RDMA && !pvn_test::links_run(c_.net == Net_::TCP ? "v0" : "v0 v1"))
            _exit(77);
        Rank r(receives, in[0], out[1]);
        r.rdma = c_.net == Net_::RDMA;
        r.stalled = stalled_;
        (receives ? c_.receiver : c_.sender)(r);
        r.close();
        Rank::end(true, receives ? "receiver" : "sender");
    }
    bool join(pid_t other) const
    {
        bool good = true;
        for (int k = 0; good && c_.net != Net_::RDMA && k < (c_.net == Net_::TWO_LINKS ? 2 : 1);
             k++)
            good = pvn_test::sh(run("ip link add v%d type veth peer name p netns %d && "
                                    "ip addr add 10.9.%d.1/24 dev v%d && ip link set v%d up",
                                    k, other)) &&
                   pvn_test::sh(run("nsenter -t %2$d -n sh -c 'ip link set p name v%1$d && "
                                    "ip addr add 10.9.%1$d.2/24 dev v%1$d && ip link set v%1$d up'",
                                    k, other));
        return good;
    }
    // Waits until both ranks have ended well, and continues a rank that stops.
    bool wait_for(pid_t r, pid_t s)
    {
        bool good = true;
        for (int left = 2; left > 0;) {
            int st;
            const pid_t p = waitpid(-1, &st, WUNTRACED);
            if (p != r && p != s)
                return false;
            if (WIFSTOPPED(st)) {
                stops_++;
                std::this_thread::sleep_for(std::chrono::milliseconds(c_.away_ms));
                wait_until(stalled_);
                kill(p, SIGCONT);
                continue;
            }
            left--;
            good &= WIFEXITED(st) && WEXITSTATUS(st) == 0;
        }
        return good;
    }

    const Case &c_;
    int stops_ = 0;
    Seen *stalled_ = nullptr;
};

// Each test starts several of the cases that follow it, too.
class LateRank : public testing::TestWithParam<Case>
{
  protected:
    enum { AT_ONCE = 10 };
    struct Running {
        pid_t pid;
        FILE *text;
    };
    static std::map<std::string, Running> running;
    static size_t begun; // of `cases`

    static void begin_some()
    {
        for (; begun < std::size(cases) && running.size() < AT_ONCE; begun++)
            if (selected(cases[begun]))
                begin(cases[begun]);
    }
    static void begin(const Case &c)
    {
        Running r = {0, tmpfile()};
        ASSERT_NE(nullptr, r.text);
        fflush(stdout);
        r.pid = fork();
        if (r.pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(fileno(r.text), 1);
            dup2(fileno(r.text), 2);
            Parent(c).run_case();
        }
        running[c.name] = r;
    }
    // Waits for a case that has begun. Returns all that it printed, and its status in *st.
    static std::string end(const Case &c, int *st)
    {
        const Running r = running.at(c.name);
        std::string text;
        EXPECT_EQ(r.pid, waitpid(r.pid, st, 0));
        running.erase(c.name);
        rewind(r.text);
        for (int b; (b = fgetc(r.text)) != EOF;)
            text += char(b);
        fclose(r.text);
        return text;
    }
    // True if the adapter got no processor time for all retries, which take half a second.
    // Softverbs' adapter is a thread of the other end's process; a real adapter would go on while
    // its process is away.
    static bool starved(const Case &c, const std::string &text)
    {
        return c.net == Net_::RDMA && c.never &&
               text.find("transport retry counter exceeded") != std::string::npos;
    }
    static bool selected(const Case &c)
    {
        const auto *all = testing::UnitTest::GetInstance();
        for (int i = 0; i < all->total_test_suite_count(); i++)
            for (int k = 0; k < all->GetTestSuite(i)->total_test_count(); k++) {
                const auto *t = all->GetTestSuite(i)->GetTestInfo(k);
                if (t->should_run() &&
                    std::string(t->name()).find(std::string("/") + c.name) != std::string::npos)
                    return true;
            }
        return false;
    }
};
std::map<std::string, LateRank::Running> LateRank::running;
size_t LateRank::begun;

TEST_P(LateRank, ComesBackAndTheJobGoesOn)
{
    const Case &c = GetParam();
    begin_some();
    int st = 0;
    std::string text = end(c, &st);

    for (int trial = 1; trial < 4 && starved(c, text); trial++) {
        begin(c);
        text = end(c, &st);
    }
    if (WIFEXITED(st) && WEXITSTATUS(st) == 77)
        GTEST_SKIP()
            << "no network namespaces of its own (run as root, with iproute2 and util-linux)\n"
            << text;
    EXPECT_TRUE(WIFEXITED(st) && WEXITSTATUS(st) == 0) << text;
    if (c.said) {
        EXPECT_NE(std::string::npos, text.find(c.said)) << c.said << " was not said:\n" << text;
    }
    if (c.never) {
        EXPECT_EQ(std::string::npos, text.find(c.never)) << text;
    }
    if (c.stops && (!c.said || !strstr(c.said, " after"))) { // otherwise a link is lost
        EXPECT_EQ(std::string::npos, text.find("Connection timed out")) << text;
    }
}

INSTANTIATE_TEST_SUITE_P(States, LateRank, testing::ValuesIn(cases),
                         [](const auto &c) { return std::string(c.param.name); });

} // namespace
