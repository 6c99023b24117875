// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the view of pvn-topo stat: the order of processes, files of other users, the size of the screen, and processes
// of other containers.
#include <gtest/gtest.h>

#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "tests/topo/stat_saved.h"

namespace
{

class StatView : public StatJob
{
  protected:
    // A process that began and ended the given numbers of seconds ago.
    std::string dead(int rank, double began, double ended)
    {
        std::string p = process(rank, {{true, 0, 0}}, "", ended, "dead");
        const std::string usual = "\"began_s_ago\": 100.0";
        return p.replace(p.find(usual), usual.size(), "\"began_s_ago\": " + std::to_string(began));
    }
    void script(const std::string &name, const std::string &text)
    {
        std::string path = name[0] == '/' ? name : dir.path + "/" + name;
        std::ofstream(path) << "#!/bin/sh\n" << text;
        chmod(path.c_str(), 0755);
    }
};

TEST_F(StatView, TheLivingComeFirstAndEarlierJobsAreFolded)
{
    std::vector<std::string> all;
    for (int i = 0; i < 40; i++)
        all.push_back(dead(100 + i, 2000, 900 - i));
    all.push_back(dead(7, 90, 3)); // belongs to the running job
    all.push_back(process(1, {{false, 2, 0}}));
    all.push_back(process(2, {{true, 1, 60}}));
    Result r = run("stat" + save("a.json", all));
    EXPECT_EQ(1, r.status) << r.err;
    size_t stalled = r.out.find("rank 2, python pid 102 on n2: alive"),
           fine = r.out.find("rank 1, python pid 101 on n1: alive"),
           ended = r.out.find("rank 7, python pid 107 on n7: dead");
    ASSERT_NE(std::string::npos, ended) << r.out;
    EXPECT_LT(stalled, fine) << r.out;
    EXPECT_LT(fine, ended) << r.out;
    EXPECT_NE(std::string::npos,
              r.out.find("40 processes of earlier jobs left files when they ended, the last 14 min "
                         "ago: --all shows them, --clean removes"))
        << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("rank 100,")) << r.out;
    r = run("--all stat a.json");
    EXPECT_NE(std::string::npos, r.out.find("rank 100,")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("earlier jobs")) << r.out;
}

// A comm without a connected peer has no peer's address.
TEST_F(StatView, AStalledCommWithoutAPeerNamesNone)
{
    std::string p = process(1, {{false, 2, 60}});
    for (const std::string peer :
         {"\"peer_host\": \"n2\", \"peer_pid\": 102, ", "\"peer_address\": \"192.0.2.1:1\", "}) {
        ASSERT_NE(std::string::npos, p.find(peer));
        p.erase(p.find(peer), peer.size());
    }
    Result r = run("stat" + save("a.json", {p}));
    EXPECT_NE(std::string::npos, r.out.find("STALLED for 60.0 s: message 7: nothing came\n"))
        << r.out;
    r = run("stat" + save("a.json", {process(1, {{false, 2, 60}})}));
    EXPECT_NE(std::string::npos,
              squeeze(r.out).find("nothing came; peer n2 pid 102 at 192.0.2.1:1"))
        << r.out;
}

// If no job runs the one that ended last is shown, because a user looks for that one.
TEST_F(StatView, OfDeadJobsTheLastIsShown)
{
    Result r = run("stat" + save("a.json", {dead(1, 5000, 4000), dead(2, 100, 20), dead(3, 99, 80),
                                            dead(4, 300, 200)}));
    EXPECT_NE(std::string::npos, r.out.find("rank 2,")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("rank 3,")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("rank 4,")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("\n2 processes of earlier jobs")) << r.out;
}

// Once another user saw "no process uses the plugin" while root's job ran, on this host and with --hosts.
TEST_F(StatView, FilesOfOtherUsersAreNotTakenForNone)
{
    // The test replaces /dev/shm, so it cannot use dir, which may be there.
    const std::string own = "/tmp/pvn-stat-view." + std::to_string(getpid());
    std::filesystem::create_directory(own);
    std::string go = "mount -t tmpfs -o mode=1777 none /dev/shm && mkdir -m 700 "
                     "/dev/shm/nccl-net-pvrdma-0 && chmod 755 " +
                     own + " && cp " PVN_BUILDDIR "/topo/pvn-topo " + own +
                     "/tool && cd / && as() { setpriv --reuid 65534 --clear-groups env -u "
                     "NCCL_PVRDMA_STATS_DIR \"$@\"; } && as " +
                     own + "/tool --version >/dev/null";
    if (std::system(("unshare -m sh -c '" + go + "' 2>" + own + "/why").c_str()) != 0) {
        std::string why = read_file(own + "/why");
        std::filesystem::remove_all(own);
        GTEST_SKIP() << "no other user, or no mount of its own: " << why;
    }
    script(own + "/play", "exec " + own + "/tool --json stat\n");
    script(own + "/go", go + "\nas " + own + "/tool stat >" + own + "/here; echo $? >>" + own +
                            "/here\nas " + own + "/tool --ssh " + own +
                            "/play --hosts n1,n2 stat >" + own + "/hosts; echo $? >>" + own +
                            "/hosts\nas " + own + "/tool --json stat >" + own + "/json\nexit 0\n");
    ASSERT_EQ(0, std::system(("unshare -m sh " + own + "/go").c_str()));
    std::string here = squeeze(read_file(own + "/here")),
                hosts = squeeze(read_file(own + "/hosts"));
    EXPECT_NE(
        std::string::npos,
        here.find("not readable: /dev/shm/nccl-net-pvrdma-0, of user root: only that user and "
                  "root can see if processes there use the plugin"))
        << here;
    EXPECT_EQ("3", here.substr(here.rfind(' ') + 1)) << here;
    EXPECT_NE(std::string::npos, hosts.find("not readable on n[1-2]: the files of other users' "
                                            "processes (of root, for example)"))
        << hosts;
    EXPECT_EQ(std::string::npos, hosts.find("no process uses the plugin")) << hosts;
    EXPECT_EQ("3", hosts.substr(hosts.rfind(' ') + 1)) << hosts;
    int rc = std::system(("python3 " PVN_SRCDIR "/tests/topo/schema_check.py " PVN_SRCDIR
                          "/topo/pvn-topo.schema.json " +
                          own + "/json")
                             .c_str());
    EXPECT_TRUE(WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 77);
    EXPECT_NE(std::string::npos, read_file(own + "/json").find("\"unreadable\""));
    std::filesystem::remove_all(own);
}

// Another container shares /dev/shm with this one and has an eth0, too.
TEST_F(StatView, AnotherNetworkNamespaceIsSeen)
{
    const std::string shm = " NCCL_PVRDMA_STATS_DIR=" + dir.path + "/stats ";
    script("go", "ip link set lo up && exec env NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo" +
                     shm + PVN_BUILDDIR "/pvn-perf p2p --idle 60 >" + dir.path + "/perf 2>&1\n");
    if (std::system("unshare -n true 2>/dev/null") != 0)
        GTEST_SKIP() << "a network namespace takes root";
    std::string pid = dir.path + "/pid";
    ASSERT_EQ(0, std::system(("unshare -n sh " + dir.path + "/go & echo $! >" + pid).c_str()));
    Result r;
    for (int i = 0; i < 200; i++) {
        r = run_tool(dir.path, "stat", shm);
        if (r.out.find("another network") != std::string::npos)
            break;
        usleep(100000);
    }
    EXPECT_NE(std::string::npos, r.out.find("it is in another network namespace: the counters of "
                                            "its interfaces are not shown"))
        << r.out << read_file(dir.path + "/perf");
    EXPECT_EQ(std::string::npos, r.out.find("Adapters of these connections")) << r.out;
    r = run_tool(dir.path, "--json stat", shm);
    EXPECT_TRUE(std::regex_search(r.out, std::regex("\"network_namespace\": [1-9]"))) << r.out;
    std::ofstream(dir.path + "/saved.json") << r.out;
    r = run_tool(dir.path, "stat " + dir.path + "/saved.json", shm);
    EXPECT_NE(std::string::npos, r.out.find("pvn-perf pid ")) << r.out;
    EXPECT_EQ(std::string::npos, r.out.find("another network"))
        << "namespaces of another host: " << r.out;
    std::system(("kill -INT $(cat " + pid + ")").c_str());
}

// Returns what a command prints on a terminal of this size.
std::string on_terminal(const std::string &command, winsize size)
{
    int fd;
    pid_t pid = forkpty(&fd, nullptr, nullptr, &size);
    if (pid == 0) {
        execlp("sh", "sh", "-c", command.c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    EXPECT_GT(pid, 0);
    std::string all;
    char part[4096];
    for (ssize_t n; (n = read(fd, part, sizeof(part))) > 0;)
        all.append(part, static_cast<size_t>(n));
    int status;
    waitpid(pid, &status, 0);
    close(fd);
    return all;
}

// Runs --watch in a window of the given size for one update and returns the output.
std::string look_in_window(const std::string &dir, unsigned short rows, unsigned short columns,
                           const std::string &files)
{
    std::string all = on_terminal(
        "cd " + dir + " && exec " PVN_BUILDDIR "/topo/pvn-topo --watch=0.1 --count 1 stat" + files,
        {rows, columns, 0, 0});
    return std::regex_replace(all, std::regex("\033\\[[0-9;]*[a-zA-Z]|\r"), "");
}

// Open MPI 5 gives its ranks pseudo-terminals whose output goes to a file.
TEST_F(StatView, ColoursAreForATerminalThatHasThem)
{
    std::string files = save("a.json", {process(0, {{true, 0, 0}})});
    auto coloured = [&](const std::string &settings) {
        std::string all = on_terminal("cd " + dir.path + " && exec env -u NO_COLOR -u TERM " +
                                          settings + " " PVN_BUILDDIR "/topo/pvn-topo stat" + files,
                                      {24, 80, 0, 0});
        EXPECT_NE(std::string::npos, all.find("rank 0")) << all;
        return all.find('\033') != std::string::npos;
    };
    EXPECT_TRUE(coloured("TERM=xterm"));
    EXPECT_TRUE(coloured("TERM=xterm NO_COLOR="));
    EXPECT_FALSE(coloured("TERM=xterm NO_COLOR=1"));
    EXPECT_FALSE(coloured("TERM=dumb"));
    EXPECT_FALSE(coloured("TERM="));
    EXPECT_FALSE(coloured(""));
}

TEST_F(StatView, WatchFitsIntoItsWindow)
{
    std::vector<std::string> all;
    for (int i = 0; i < 60; i++)
        all.push_back(process(i, {{true, (i + 1) % 60, i == 50 ? 60.0 : 0.0}}));
    std::string files = save("a.json", all);
    for (auto [rows, columns] : {std::pair{24, 80}, {12, 50}, {50, 200}}) {
        std::string text = look_in_window(dir.path, static_cast<unsigned short>(rows),
                                          static_cast<unsigned short>(columns), files);
        std::istringstream in(text);
        int n = 0;
        for (std::string line; std::getline(in, line); n++)
            EXPECT_LE(line.size(), static_cast<size_t>(columns)) << text;
        EXPECT_LT(n, rows) << text;
        EXPECT_GE(n, rows < 50 ? rows - 2 : 40) << "the window is used" << text;
        EXPECT_NE(std::string::npos, text.find("1 of 60 processes waits")) << text;
    }
    std::string big = look_in_window(dir.path, 50, 200, files);
    EXPECT_NE(std::string::npos, big.find("more processes")) << big;
    EXPECT_NE(std::string::npos, big.find(" all\n")) << big;
}

// The copies that srun starts share one terminal.
TEST_F(StatView, CheckNamesItsHostWhereThereAreSeveral)
{
    char host[65] = "";
    gethostname(host, sizeof(host) - 1);
    const std::string srun = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 ",
                      none = "NCCL_PVRDMA_STATS_DIR=" + dir.path + "/none ";
    Result r = run_tool(dir.path, "--interval 0 check", none + srun);
    EXPECT_EQ(0u, r.out.find("host " + std::string(host) + " (pvn-topo check --hosts"))
        << r.out << r.err;
    r = run_tool(dir.path, "--interval 0 check", none);
    EXPECT_NE(0u, r.out.find("host ")) << r.out;
}

} // namespace
