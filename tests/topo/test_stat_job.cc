// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-topo stat of a whole job: it reads what several hosts have saved by --json stat, and names the process that
// the others wait for.
#include <gtest/gtest.h>

#include "tests/topo/stat_saved.h"

namespace
{

TEST_F(StatJob, TheRankThatAllWaitFor)
{
    const struct {
        int left_out;
        const char *state, *life;
        double written;
        const char *why;
    } cases[] = {
        {-1, "stopped", "alive", 20, "it is stopped, by a signal or a debugger"},
        {-1, "sleeping", "alive", 20,
         "NCCL has not called the plugin there for 20 s: it computes, idles, or hangs elsewhere"},
        {-1, "running", "alive", 0.1,
         "it waits for no other process: its GPU or its program has the next step"},
    };
    for (const auto &c : cases) {
        Result r = run("stat" + ring(c.left_out, c.state, c.written, c.life));
        EXPECT_EQ(1, r.status) << r.err;
        EXPECT_EQ(std::string("3 of 4 processes wait for rank 2, python pid 102 on n2: ") + c.why,
                  first_line(r));
        std::string all = squeeze(r.out);
        EXPECT_NE(std::string::npos, all.find("rank 1, python pid 101 on n1 has waited 9.0 s to "
                                              "send to rank 2 (comm 1): message 7: nothing came"))
            << r.out;
        EXPECT_NE(std::string::npos, all.find("has waited 9.0 s to receive from rank 2"));
        EXPECT_NE(std::string::npos, all.find("rank 0 waits for these"));
    }
    Result r = run("stat" + ring(-1, "", 20, "dead"));
    EXPECT_NE(std::string::npos, first_line(r).find("rank 2, python pid 102 on n2: it is dead"));
}

// Host n1 was saved 3 s into the hang, n2 after 1.5 s, the others later: the waits of both lead to rank 3.
TEST_F(StatJob, AHostThatWasSavedEarlyIsNotTheOneThatAllWaitFor)
{
    const double early = 1.5;
    std::string names = save("0.json", {process(0, {{false, 3, 0}, {true, 1, 9}})}) +
                        save("1.json", {process(1, {{false, 0, 0}, {true, 2, 3}})}) +
                        save("2.json", {process(2, {{false, 1, 0}, {true, 3, early}})});
    Result r = run("stat" + names + save("3.json", {process(3, {{true, 0, 0}}, "stopped", 9)}));
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_EQ(
        "3 of 4 processes wait for rank 3, python pid 103 on n3: it is stopped, by a signal or a debugger",
        first_line(r));
    EXPECT_NE(
        std::string::npos,
        squeeze(r.out).find("rank 2, python pid 102 on n2 has waited 1.5 s to send to rank 3"))
        << r.out;
    EXPECT_EQ(0u, first_line(run("stat" + names)).find("3 of 3 processes wait for pid 103 on n3"));

    // Waits that every job has are not reported, nor are short waits if no comm is stalled.
    names = save("0.json", {process(0, {{true, 1, 9}})}) +
            save("1.json", {process(1, {{true, 2, 0.5}}, "stopped", 9)});
    EXPECT_EQ(0u, first_line(run("stat" + names)).find("1 of 2 processes waits for rank 1"))
        << run("stat" + names).out;
    names =
        save("0.json", {process(0, {{true, 1, 3}})}) + save("1.json", {process(1, {{true, 0, 2}})});
    EXPECT_EQ(0, run("stat" + names).status);
}

TEST_F(StatJob, AHostThatIsNotAmongTheFiles)
{
    Result r = run("stat" + ring(2, "", 0));
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_EQ("3 of 3 processes wait for pid 102 on n2: its statistics are not among these: run "
              "pvn-topo --json stat on n2",
              first_line(r));
}

// Every rank has posted its receives. The rank that got its data and has not sent is behind.
TEST_F(StatJob, InACircleTheOneThatIsBehindIsNamed)
{
    std::string names;
    for (int behind : {1, -1}) {
        names = "";
        for (int r = 0; r < 3; r++)
            names += save(std::to_string(r) + ".json",
                          {process(r, {{false, (r + 2) % 3, 6, r == 2 && behind == 1 ? 98 : 100},
                                       {true, (r + 1) % 3, 0, r == behind ? 98 : 100}})});
        Result r = run("stat" + names);
        EXPECT_EQ(behind == 1
                      ? "rank 0, rank 1, rank 2 wait for each other: rank 1, python pid 101 on n1 "
                        "has received 100 messages from the others and sent 98: its next one is "
                        "what is missing first"
                      : "rank 0, rank 1, rank 2 wait for each other: none has fallen behind the "
                        "others: look at the network between them, and whether all are in the same "
                        "collective",
                  first_line(r))
            << r.out;
    }
    // Another process only waits.
    names += save("3.json", {process(3, {{false, 0, 6}})});
    EXPECT_NE(
        std::string::npos,
        first_line(run("stat" + names))
            .find("rank 0, rank 1, rank 2 wait for each other, and 1 more process for them:"));
}

// Two clones of a virtual machine, or two containers, may have one host name, and their processes one pid. Their
// addresses differ.
TEST_F(StatJob, ProcessesOfOneHostNameAndPid)
{
    auto clone = [&](int at, const std::string &comms, double written, const std::string &file) {
        return "{\"file\": \"" + file +
               "\", \"pid\": 5, \"host\": \"clone\", \"command\": \"python\", " + "\"rank\": \"" +
               std::to_string(at) + "\", \"life\": \"alive\", \"state\": \"sleeping\", " +
               "\"plugin\": \"0.1.0\", \"interface\": 11, \"began_s_ago\": 100.0, \"written_s_ago\": " +
               std::to_string(written) + ", \"addresses\": [\"10.0.0." + std::to_string(at) +
               "\", \"192.0.2." + std::to_string(at) + "\"], \"comms\": [" + comms + "]}";
    };
    auto waits = [&](int of, double stall) {
        return "{\"comm\": 1, \"kind\": \"recv\", \"state\": \"UP\", \"closed\": false, \"trouble\": " +
               std::string(stall > 0 ? "\"stalled\"" : "null") +
               ", \"text\": \"\", \"device\": \"e0\", \"peer_host\": \"clone\", \"peer_pid\": 5, " +
               "\"peer_address\": \"192.0.2." + std::to_string(of) +
               ":50000\", \"stalled_s\": " + (stall > 0 ? std::to_string(stall) : "null") +
               ", \"messages\": 1, \"in_state_s\": 60.0, \"moved_s_ago\": 9.0}";
    };
    for (const char *file : {"/dev/shm/x/5-77-0.stat", "/dev/shm/x/5-78-0.stat"}) {
        std::string names = save("1.json", {clone(1, waits(2, 9), 0.1, "/dev/shm/x/5-77-0.stat")}) +
                            save("3.json", {clone(3, waits(2, 8), 0.1, "/dev/shm/x/5-79-0.stat")});
        Result r = run("stat" + names);
        EXPECT_EQ(0u, first_line(r).find("2 of 2 processes wait for pid 5 on clone: its statistics "
                                         "are not among these"))
            << r.out << r.err;
        names += save("2.json", {clone(2, waits(1, 0), 20, file)});
        r = run("stat" + names);
        EXPECT_EQ(1, r.status);
        EXPECT_EQ("", r.err);
        EXPECT_EQ(0u, first_line(r).find(
                          "2 of 3 processes wait for rank 2, python pid 5 on clone: NCCL has "
                          "not called the plugin there for 20 s"))
            << r.out;
    }
    // A process may be its own peer, which is no reason to wait for another one.
    Result r = run("stat" + save("1.json", {clone(1, waits(1, 9), 0.1, "/dev/shm/x/5-77-0.stat")}));
    EXPECT_EQ(std::string::npos, r.out.find("wait for")) << r.out;
}

TEST_F(StatJob, AJobInWhichNobodyWaitsIsListed)
{
    std::string names = save("0.json", {process(0, {{true, 1, 0}})});
    Result r = run("stat" + names);
    EXPECT_EQ(0, r.status);
    EXPECT_EQ(0u, r.out.find("rank 0, python pid 100")) << r.out;
}

TEST_F(StatJob, WhatCannotBeRead)
{
    std::string names = ring(-1, "stopped", 20), whole = read_file(dir.path + "/1.json");
    std::ofstream(dir.path + "/1.json") << whole.substr(0, whole.size() / 2);
    Result r = run("stat" + names);
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("1.json: line 1: ")) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("it was cut, or is not what pvn-topo --json stat"));
    EXPECT_NE(std::string::npos, first_line(r).find("wait for rank 2, ")) << "the others are shown";
    std::ofstream(dir.path + "/1.json") << "{\"kind\": \"pairs\"}";
    r = run("stat" + names);
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("1.json is JSON, but not of pvn-topo --json stat"));
    // The document has ages and texts that no plugin writes.
    save("1.json", {"{\"host\": \"a\\u001bb\", \"pid\": -5, \"began_s_ago\": 1e300, \"comms\": "
                    "[{\"kind\": 7, \"messages\": -1, \"stalled_s\": -3}, 8, null]}",
                    "17"});
    r = run("stat" + names);
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_EQ(std::string::npos, r.out.find('\x1b'));
    EXPECT_EQ(3, run("stat no-such.json").status);
    EXPECT_EQ(2, run("--prom stat" + names).status);
}

// A file of another version may lack fields or have more. The known ones are shown.
TEST_F(StatJob, AFileOfAnotherVersionThatCanBeRead)
{
    std::string names = ring(-1, "stopped", 20), text = read_file(dir.path + "/1.json");
    std::ofstream(dir.path + "/1.json")
        << text.replace(0, 1, "{\"format_version\": 1, \"tool_version\": \"9.1\", ");
    Result r = run("stat" + names);
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_NE(std::string::npos, squeeze(r.err).find("1.json: of pvn-topo 9.1, and this one is "))
        << r.err;
    EXPECT_NE(std::string::npos,
              squeeze(r.err).find("figures that only one of them has are missing"))
        << r.err;
    EXPECT_EQ(0u, first_line(r).find("3 of 4 processes wait for rank 2")) << r.out;
}

// Output of ssh comes through a pipe, so each input is read once from its beginning to its end.
TEST_F(StatJob, PipesAndStandardInput)
{
    ring(-1, "stopped", 20);
    std::string expected = "3 of 4 processes wait for rank 2, python pid 102 on n2: it is stopped, "
                           "by a signal or a debugger";
    ASSERT_EQ(0, system(("mkfifo '" + dir.path + "/f'").c_str()));
    ASSERT_EQ(0, system(("cat '" + dir.path + "/1.json' >'" + dir.path + "/f' &").c_str()));
    Result r = run("stat 0.json f 2.json - <3.json");
    EXPECT_EQ(1, r.status) << r.err;
    EXPECT_EQ(expected, first_line(r));
}

TEST_F(StatJob, AProcessInTwoFilesIsCountedOnce)
{
    std::string names = ring(-1, "stopped", 20);
    Result r = run("stat" + names + save("again.json", {process(3, {{false, 2, 30}})}));
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos,
              squeeze(r.err).find("again.json: process 103 of n3 is in an earlier file, too"))
        << r.err;
    EXPECT_NE(std::string::npos, first_line(r).find("3 of 4 processes wait for rank 2"));
}

// A ring of 64 hosts with 64 ranks each. Its saved output reads back the same.
TEST_F(StatJob, AJobOfManyHostsIsReadAndSavedAlike)
{
    std::string names;
    const int n = 64 * 64, slow = 1234;
    per_host = 64;
    for (int h = 0; h < 64; h++) {
        std::vector<std::string> all;
        for (int r = h * 64; r < h * 64 + 64; r++)
            all.push_back(process(
                r, {{true, (r + 1) % n, 0}, {false, (r + n - 1) % n, r == slow ? 0.0 : 9.0}}));
        names += save(std::to_string(h) + ".json", all);
    }
    Result r = run("--json -o all.json stat" + names);
    EXPECT_EQ(1, r.status) << r.err;
    for (const std::string &files : {names, std::string(" all.json")})
        EXPECT_EQ("4095 of 4096 processes wait for rank 1234, python pid 1334 on n19: it waits for "
                  "no other process: its GPU or its program has the next step",
                  first_line(run("stat" + files)));
}

} // namespace
