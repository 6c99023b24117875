// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The statistics file. A reader gets the written values, also from a killed process, a damaged file
// or during a write. Who may create the file, and which files may be removed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <random>
#include <sched.h>
#include <set>
#include <string>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "unit/stats_files.h"

extern "C" {
#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "stats/stat_via.h"
#include "stats/stats.h"
#include "stats/stats_read.h"
}

namespace
{

TEST_F(Stats, WhatIsWrittenIsWhatIsRead)
{
    setenv("RANK", "7", 1);
    pvn_stats_open(11);
    unsetenv("RANK");
    ASSERT_STRNE("", pvn_stats_path()) << said;
    struct stat st;
    ASSERT_EQ(0, stat(pvn_stats_path(), &st));
    EXPECT_EQ(0600u, st.st_mode & 07777);
    EXPECT_LT(st.st_size, 64 * 1024) << "small until there are many comms";
    ASSERT_EQ(0, stat(dir.c_str(), &st));
    EXPECT_EQ(0700u, st.st_mode & 07777);

    pvn_stat *a = pvn_stat_new(PVN_STAT_SETUP, true, "mlx5_0");
    pvn_stat *b = pvn_stat_new(PVN_STAT_SETUP, false, "eth1");
    pvn_stat *l = pvn_stat_new(PVN_STAT_LISTEN, false, "eth2");
    ASSERT_TRUE(a && b && l);
    pvn_stat_peer(a, "node8", 812, "192.0.2.8:4711");
    pvn_stat_state(a, PVN_STAT_SETUP, "VERIFY", "the lanes' first round trip");
    pvn_stat_lanes(a, "rdma on mlx5_0:1");
    pvn_stat_state(b, PVN_STAT_UP, "UP", "");
    pvn_stat_counts n = {};
    n.look_ns = pvn_now_ns();
    n.moved_ns = n.look_ns - 5;
    n.stuck_ns = n.look_ns - 3;
    n.open = 3;
    n.msgs = 4;
    n.bytes = UINT64_C(1) << 40;
    n.retransmits = 17;
    n.known = PVN_STAT_KNOWS_RETRANSMITS;
    pvn_stat_put(b, &n, "waiting for the peer's send");

    Read r(pvn_stats_path());
    ASSERT_EQ(0, r.rc) << r.err.reason[0];
    EXPECT_EQ(PVN_STATS_ALIVE, r.s.life);
    EXPECT_EQ(static_cast<uint64_t>(getpid()), r.s.head.id.pid);
    EXPECT_EQ(11u, r.s.head.abi);
    EXPECT_STREQ("7", r.s.head.rank);
    EXPECT_STREQ("RANK", r.s.head.rank_from);
    EXPECT_EQ(3u, r.s.head.open);
    ASSERT_EQ(3, r.s.nrows);
    const pvn_stat_row &ra = r.s.row[0], &rb = r.s.row[1], &rl = r.s.row[2];
    EXPECT_EQ(1u, ra.id);
    EXPECT_EQ(1u, ra.sender);
    EXPECT_EQ(static_cast<uint32_t>(PVN_STAT_SETUP), ra.phase);
    EXPECT_STREQ("VERIFY", ra.state);
    EXPECT_STREQ("the lanes' first round trip", ra.text);
    EXPECT_STREQ("mlx5_0", ra.device);
    EXPECT_STREQ("node8", ra.peer_host);
    EXPECT_STREQ("192.0.2.8:4711", ra.peer_addr);
    EXPECT_STREQ("rdma on mlx5_0:1", ra.lanes);
    EXPECT_EQ(812u, ra.peer_pid);
    EXPECT_EQ(0, memcmp(&n, &rb.n, sizeof(n)));
    EXPECT_STREQ("waiting for the peer's send", rb.text);
    EXPECT_EQ(static_cast<uint32_t>(PVN_STAT_LISTEN), rl.phase);
    EXPECT_GE(r.s.now_ns, n.look_ns);

    pvn_stat_put(b, &n, "");
    pvn_stat_end(a);
    pvn_stat_end(l);
    Read again(pvn_stats_path());
    ASSERT_EQ(2, again.s.nrows) << "a listener leaves no row";
    EXPECT_EQ(static_cast<uint32_t>(PVN_STAT_CLOSED), again.s.row[0].phase);
    EXPECT_NE(0u, again.s.row[0].ended_ns);
    EXPECT_STREQ("", again.s.row[1].text);
    EXPECT_EQ(1u, again.s.head.open);

    pvn_stats_close();
    EXPECT_EQ(1u, files().size()) << "a comm is still there";
    pvn_stat_end(b);
    EXPECT_EQ(0u, files().size()) << "all is well: nothing to look at";
    EXPECT_STREQ("", pvn_stats_path());
}

// Messages, bytes and open requests are the later of the row's values and the live counters. A
// request that was stuck when the row was published, and has moved since, is not stuck.
TEST_F(Stats, LiveCountersAreNewerThanTheRow)
{
    pvn_stats_open(12);
    pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, "eth0");
    pvn_live *live = pvn_stat_live(s);
    ASSERT_NE(nullptr, live);
    EXPECT_EQ(nullptr, pvn_stat_live(nullptr));
    pvn_stat_counts n = {};
    n.look_ns = pvn_now_ns();
    n.moved_ns = n.look_ns - 7;
    n.stuck_ns = n.look_ns - 5;
    n.open = 2;
    n.msgs = 10;
    n.bytes = 1000, n.flushes = 4;
    n.chunks = 12;
    pvn_stat_put(s, &n, "waiting for the peer");
    for (const pvn_live &earlier : {pvn_live{0, 0, 0, 0}, pvn_live{9, 900, 3, 14}}) {
        *live = earlier;
        Read r(pvn_stats_path());
        ASSERT_EQ(1, r.s.nrows);
        EXPECT_EQ(0, memcmp(&n, &r.s.row[0].n, sizeof(n)));
        EXPECT_STREQ("waiting for the peer", r.s.row[0].text);
    }
    *live = {10, 1000, 4, 17};
    EXPECT_EQ(3u, Read(pvn_stats_path()).s.row[0].n.open);
    EXPECT_EQ(n.stuck_ns, Read(pvn_stats_path()).s.row[0].n.stuck_ns) << "nothing has moved";
    *live = {13, 1300, 5, 18}; // a flush and three messages have ended
    Read r(pvn_stats_path());
    const pvn_stat_row &row = r.s.row[0];
    EXPECT_EQ(13u, row.n.msgs);
    EXPECT_EQ(1300u, row.n.bytes);
    EXPECT_EQ(5u, row.n.flushes);
    EXPECT_EQ(0u, row.n.open);
    EXPECT_EQ(12u, row.n.chunks);
    EXPECT_EQ(0u, row.n.stuck_ns);
    EXPECT_EQ(n.look_ns, row.n.moved_ns) << "later than that, at a time that is not known";
    EXPECT_STREQ("", row.text);
    live->msgs = 14; // counted between two loads of a reader
    EXPECT_EQ(0u, Read(pvn_stats_path()).s.row[0].n.open);
    pvn_stat_lanes(s, "tcp on eth0");
    EXPECT_EQ(14u, live->msgs) << "publishing leaves them alone";
    pvn_stat_end(s);
}

// The reason of a failure stays, although a message was counted after the row was published.
TEST_F(Stats, LiveCountersOfAFailedComm)
{
    pvn_stats_open(12);
    pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, "eth0");
    pvn_stat_counts n = {};
    n.stuck_ns = n.look_ns = pvn_now_ns();
    pvn_stat_put(s, &n, "waiting for the peer");
    pvn_stat_state(s, PVN_STAT_FAILED, "FAILED", "the peer was killed");
    pvn_stat_live(s)->opened = pvn_stat_live(s)->msgs = 1;
    Read r(pvn_stats_path());
    ASSERT_EQ(1, r.s.nrows);
    EXPECT_EQ(1u, r.s.row[0].n.msgs);
    EXPECT_STREQ("the peer was killed", r.s.row[0].text);
    pvn_stat_end(s);
}

TEST_F(Stats, AFailureIsKept)
{
    pvn_stats_open(12);
    pvn_stat *a = pvn_stat_new(PVN_STAT_UP, true, "eth0");
    std::string path = pvn_stats_path();
    pvn_stat_state(a, PVN_STAT_FAILED, "FAILED", "the peer's process\nwas killed");
    pvn_stat_end(a);
    pvn_stats_close();
    Read r(path);
    ASSERT_EQ(0, r.rc);
    EXPECT_EQ(1u, r.s.head.failed);
    ASSERT_EQ(1, r.s.nrows);
    EXPECT_EQ(static_cast<uint32_t>(PVN_STAT_FAILED), r.s.row[0].phase);
    EXPECT_STREQ("the peer's process?was killed", r.s.row[0].text);
    EXPECT_NE(0u, r.s.row[0].ended_ns);
    pvn_stats_open(12);
    EXPECT_NE(path, pvn_stats_path()) << "a new file beside it";
    pvn_stats_close();
    EXPECT_EQ(1u, files().size());
}

// A job that restarts within its process, each time after a failure, keeps a file of each life.
TEST_F(Stats, AProcessThatFailsAgainAndAgainHasAFileEachTime)
{
    const int lives = 2 * PVN_STATS_KEEP;
    for (int i = 0; i < lives; i++) {
        pvn_stats_open(12);
        ASSERT_STRNE("", pvn_stats_path()) << "life " << i << ": " << said;
        pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, "eth0");
        pvn_stat_state(s, PVN_STAT_FAILED, "FAILED", "the peer was killed");
        pvn_stat_end(s);
        pvn_stats_close();
    }
    EXPECT_EQ(static_cast<size_t>(PVN_STATS_KEEP) + 1, files().size()) << "the newest of them";
}

TEST_F(Stats, MoreCommsThanRows)
{
    pvn_stats_open(12);
    std::vector<pvn_stat *> all;
    for (int i = 0; i < PVN_STAT_ROWS; i++)
        all.push_back(pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    for (auto *s : all)
        ASSERT_NE(nullptr, s);
    EXPECT_EQ(nullptr, pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    EXPECT_EQ(nullptr, pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    pvn_stat_counts n = {};
    pvn_stat_put(nullptr, &n, "");
    pvn_stat_end(nullptr);
    Read r(pvn_stats_path());
    ASSERT_EQ(0, r.rc);
    EXPECT_EQ(PVN_STAT_ROWS, r.s.nrows);
    EXPECT_EQ(2u, r.s.head.untracked);
    pvn_stat_state(all[3], PVN_STAT_FAILED, "FAILED", "x");
    pvn_stat_end(all[3]);
    pvn_stat_end(all[5]);
    pvn_stat *late = pvn_stat_new(PVN_STAT_UP, false, "eth0");
    ASSERT_NE(nullptr, late) << "in the place of the one that was closed";
    Read again(pvn_stats_path());
    EXPECT_EQ(static_cast<uint32_t>(PVN_STAT_FAILED), again.s.row[3].phase) << "failures stay";
    EXPECT_EQ(7u, again.s.row[5].id);
    pvn_stat_end(late);
    for (size_t i = 0; i < all.size(); i++)
        if (i != 3 && i != 5)
            pvn_stat_end(all[i]);
}

// Rows are reused, but their counts are kept, so no counter ever decreases.
TEST_F(Stats, NumbersOutliveTheirRows)
{
    pvn_stats_open(12);
    const int comms = 2 * PVN_STAT_ROWS + 100;
    for (int i = 0; i < comms; i++) {
        pvn_stat *s = pvn_stat_new(PVN_STAT_UP, i % 2 == 0, i % 3 ? "eth0" : "p0");
        ASSERT_NE(nullptr, s);
        pvn_stat_lanes(s, i % 3 ? "tcp on eth0, 2 streams" : "rdma on p0; tcp on eth0");
        pvn_stat_counts n = {};
        n.msgs = 3;
        n.bytes = 1000;
        n.doorbells_send = i % 3 ? 0 : 2;
        pvn_live *live = pvn_stat_live(s);
        EXPECT_EQ(0u, live->msgs + live->bytes + live->opened) << "of the row's former owner";
        pvn_stat_put(s, &n, "");
        live->opened = live->msgs = 2; // copied before the last publication
        pvn_stat_end(s);
    }
    Read r(pvn_stats_path());
    ASSERT_EQ(0, r.rc);
    uint64_t msgs = 0, bytes = 0, doorbells = 0, outlived = 0;
    int kinds = 0;
    for (int i = 0; i < r.s.nrows; i++) {
        msgs += r.s.row[i].n.msgs;
        bytes += r.s.row[i].n.bytes;
        doorbells += r.s.row[i].n.doorbells_send;
    }
    for (const pvn_stat_total &t : r.s.head.total) {
        kinds += t.device[0] != '\0';
        outlived += t.comms;
        msgs += t.msgs;
        bytes += t.bytes;
        doorbells += t.doorbells_send;
        EXPECT_EQ(strcmp(t.device, "p0") == 0, (t.via & PVN_VIA_RDMA) != 0) << t.device;
    }
    EXPECT_EQ(4, kinds) << "two devices, two directions";
    EXPECT_EQ(static_cast<uint64_t>(comms - r.s.nrows), outlived);
    EXPECT_GT(outlived, 0u);
    EXPECT_EQ(3u * comms, msgs);
    EXPECT_EQ(1000u * comms, bytes);
    EXPECT_EQ(2u * ((comms + 2) / 3), doorbells);
    EXPECT_EQ(0u, r.s.head.totals_seq % 2);
}

// If there are more kinds of comms than entries, the rest share the last entry.
TEST_F(Stats, TotalsOfTooManyDevices)
{
    pvn_stats_open(12);
    for (int i = 0; i < 20 * PVN_STAT_GROW; i++) {
        pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, ("dev" + std::to_string(i)).c_str());
        pvn_stat_counts n = {};
        n.msgs = 1;
        pvn_stat_put(s, &n, "");
        pvn_stat_end(s);
    }
    Read r(pvn_stats_path());
    ASSERT_EQ(0, r.rc);
    uint64_t msgs = static_cast<uint64_t>(r.s.nrows);
    for (const pvn_stat_total &t : r.s.head.total)
        msgs += t.msgs;
    EXPECT_EQ(20u * PVN_STAT_GROW, msgs);
    EXPECT_STREQ("others", r.s.head.total[PVN_STAT_TOTALS - 1].device);
}

TEST_F(Stats, AFileThatWasRemovedCostsRowsOnly)
{
    pvn_stats_open(12);
    std::vector<pvn_stat *> all;
    unlink(pvn_stats_path());
    for (int i = 0; i < PVN_STAT_GROW; i++)
        all.push_back(pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    EXPECT_NE(nullptr, all.back());
    EXPECT_EQ(nullptr, pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    spill(pvn_stats_path(), "somebody else's");
    EXPECT_EQ(nullptr, pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    EXPECT_EQ("somebody else's", slurp(pvn_stats_path()));
    for (auto *s : all)
        pvn_stat_end(s);
}

TEST_F(Stats, RowsAreReadWhole)
{
    pvn_stats_open(12);
    pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, "eth0");
    std::string path = pvn_stats_path();
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        pvn_stat_counts n = {};
        char text[600];
        for (uint64_t i = 1; !stop; i++) {
            n.msgs = n.bytes = n.chunks = n.retransmits = n.moved_ns = i;
            memset(text, 'a' + static_cast<int>(i % 26), sizeof(text));
            text[i % sizeof(text)] = '\0'; // in the row the rest of a longer text may follow
            pvn_stat_put(s, &n, text);
        }
    });
    std::set<uint64_t> seen;
    int partial = 0;
    for (int i = 0; i < 100000 && seen.size() < 50; i++) {
        Read r(path);
        ASSERT_EQ(0, r.rc);
        ASSERT_EQ(1, r.s.nrows);
        const pvn_stat_row &row = r.s.row[0];
        partial += row.seq != 0;
        if (row.seq || row.n.msgs == 0)
            continue;
        EXPECT_EQ(row.n.msgs, row.n.bytes);
        EXPECT_EQ(row.n.msgs, row.n.moved_ns);
        EXPECT_EQ(row.n.msgs, row.n.retransmits);
        EXPECT_EQ(std::string(row.n.msgs % 600, char('a' + row.n.msgs % 26)), row.text);
        seen.insert(row.n.msgs);
    }
    stop = true;
    writer.join();
    EXPECT_EQ(50u, seen.size()) << partial << " partially visible";
    pvn_stat_end(s);
}

TEST_F(Stats, ARowLeftHalfWrittenIsSaidToBe)
{
    std::string name = dead_file(1, [](pvn_stat_head *h) {
        auto *row = reinterpret_cast<pvn_stat_row *>(h + 1);
        row->seq++;
    });
    Read r(dir + "/" + name);
    ASSERT_EQ(0, r.rc);
    ASSERT_EQ(1, r.s.nrows);
    EXPECT_EQ(1u, r.s.row[0].seq);
}

TEST_F(Stats, ADamagedFileIsRefused)
{
    std::string good = dead_file(1, [](pvn_stat_head *) {});
    std::string image = slurp(dir + "/" + good), path = dir + "/x.stat";
    auto code = [&](size_t at, const std::string &bytes) {
        std::string copy = image;
        copy.replace(at, bytes.size(), bytes);
        spill(path, copy);
        return Read(path).rc;
    };
    EXPECT_EQ(0, code(0, ""));
    EXPECT_EQ(-EBADMSG, code(0, "X"));
    EXPECT_EQ(-EPROTONOSUPPORT, code(8, "\x09"));
    EXPECT_EQ(-EBADMSG, code(12, "\x01")) << "bytes of the header";
    EXPECT_EQ(-EBADMSG, code(16, "\x01")) << "bytes of a row";
    EXPECT_EQ(-EBADMSG, code(offsetof(pvn_stat_head, rows), "\xff\xff\xff\xff"));
    EXPECT_EQ(-EBADMSG, code(offsetof(pvn_stat_head, rows), "\x40")) << "more than there are";
    for (size_t n : {size_t{0}, size_t{7}, sizeof(pvn_stat_ident), sizeof(pvn_stat_head) - 1,
                     sizeof(pvn_stat_head) + 1, image.size() - 1}) {
        spill(path, image.substr(0, n));
        EXPECT_EQ(-EBADMSG, Read(path).rc) << n << " bytes";
    }
    spill(path, image);
    {
        std::string copy = image;
        copy[8] = 9;
        spill(path, copy);
        Read r(path);
        EXPECT_NE(nullptr, strstr(r.err.reason[0], "version 9")) << r.err.reason[0];
        EXPECT_EQ(PVN_STATS_DEAD, r.s.life) << "whose it is can still be read";
    }
    // Texts without a terminator, or with control characters for a terminal.
    size_t texts = offsetof(pvn_stat_row, state);
    EXPECT_EQ(
        0, code(sizeof(pvn_stat_head) + texts, std::string(sizeof(pvn_stat_row) - texts, '\x1b')));
    {
        Read r(path);
        ASSERT_EQ(1, r.s.nrows);
        EXPECT_EQ(std::string(sizeof(r.s.row[0].state) - 1, '?'), r.s.row[0].state);
        EXPECT_EQ(std::string(sizeof(r.s.row[0].text) - 1, '?'), r.s.row[0].text);
    }
    std::mt19937 rng(20261122);
    int read = 0;
    for (int i = 0; i < 500; i++) {
        std::string copy = image;
        for (int k = 0; k < 30; k++)
            copy[rng() % (i % 2 ? copy.size() : 4000)] = static_cast<char>(rng());
        if (i % 3 == 0)
            // otherwise readers would reject nearly all of them early
            memcpy(copy.data(), image.data(), 32);
        spill(path, copy);
        Read r(path);
        read += r.rc == 0;
        for (int k = 0; k < r.s.nrows; k++)
            EXPECT_LT(strlen(r.s.row[k].text), sizeof(r.s.row[k].text));
    }
    EXPECT_GT(read, 50);
}

TEST_F(Stats, OnlyRegularFilesAreRead)
{
    std::string name = dir + "/" + dead_file(1, [](pvn_stat_head *) {});
    std::string link = dir + "/link", fifo = dir + "/fifo";
    ASSERT_EQ(0, symlink(name.c_str(), link.c_str()));
    ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
    EXPECT_EQ(0, Read(name).rc);
    EXPECT_EQ(-ELOOP, Read(link).rc);
    EXPECT_EQ(-EBADMSG, Read(fifo).rc);
    EXPECT_EQ(-EBADMSG, Read(dir).rc);
    EXPECT_EQ(-ENOENT, Read(dir + "/none").rc);
}

// ---- the directory ----

TEST_F(Stats, NoneIsNoFile)
{
    use("none");
    pvn_stats_open(12);
    EXPECT_EQ(nullptr, pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    EXPECT_EQ("", said);
}

TEST_F(Stats, DirectoriesThatAreNotTaken)
{
    std::string target = top + "/target", link = top + "/link", open = top + "/open",
                file = top + "/file";
    mkdir(target.c_str(), 0700);
    ASSERT_EQ(0, symlink(target.c_str(), link.c_str()));
    mkdir(open.c_str(), 0700);
    chmod(open.c_str(), 0777);
    spill(file, "");
    std::vector<std::string> bad = {link, open, file, "/proc/none/d", "/proc", top + "/no/where"};
    if (geteuid() == 0) {
        std::string other = top + "/other";
        mkdir(other.c_str(), 0700);
        ASSERT_EQ(0, chown(other.c_str(), 12345, 12345));
        bad.push_back(other);
    }
    for (auto &d : bad) {
        use(d);
        said.clear();
        pvn_stats_open(12);
        EXPECT_STREQ("", pvn_stats_path()) << d;
        EXPECT_EQ(0u, said.find("no statistics file in " + d + " (NCCL_PVRDMA_STATS_DIR): "))
            << said;
        EXPECT_EQ(1, std::count(said.begin(), said.end(), '\n')) << said;
        EXPECT_EQ(nullptr, pvn_stat_new(PVN_STAT_UP, true, "eth0"));
    }
    chmod(open.c_str(), 01777);
    use(open);
    pvn_stats_open(12);
    EXPECT_STRNE("", pvn_stats_path()) << "as /tmp is";
}

// A link that has the file's name is not followed.
TEST_F(Stats, ALinkInPlaceOfTheDirectory)
{
    pvn_stat_ident id;
    ASSERT_EQ(0, pvn_stats_ident_self(&id));
    std::string victim = top + "/victim";
    mkdir(dir.c_str(), 0700);
    spill(victim, "precious");
    for (int i = 0; i < 16 + PVN_STATS_KEEP; i++) {
        std::string name = dir + "/" + std::to_string(id.pid) + "-" + std::to_string(id.start) +
                           "-" + std::to_string(i) + ".stat";
        ASSERT_EQ(0, symlink(victim.c_str(), name.c_str()));
        if (i == 14) {
            pvn_stats_open(12);
            EXPECT_STRNE("", pvn_stats_path()) << "the next number is free";
            pvn_stats_close();
        }
    }
    pvn_stats_open(12);
    EXPECT_STREQ("", pvn_stats_path());
    EXPECT_NE(std::string::npos, said.find("File exists")) << said;
    EXPECT_EQ("precious", slurp(victim));
}

TEST_F(Stats, AFullFileSystem)
{
    mkdir(dir.c_str(), 0700);
    std::string why;
    std::thread([&] {
        if (unshare(CLONE_NEWNS | CLONE_FS) != 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
            why = strerror(errno);
            return;
        }
        for (int kib : {16, 100}) {
            std::string size = "size=" + std::to_string(kib) + "k";
            ASSERT_EQ(0, mount("tmpfs", dir.c_str(), "tmpfs", 0, size.c_str()));
            said.clear();
            pvn_stats_open(12);
            std::vector<pvn_stat *> all;
            for (int i = 0; i < 3 * PVN_STAT_GROW; i++)
                all.push_back(pvn_stat_new(PVN_STAT_UP, true, "eth0"));
            if (kib == 16) {
                EXPECT_EQ(nullptr, all[0]);
                EXPECT_NE(std::string::npos, said.find("no room")) << said;
            } else {
                EXPECT_NE(nullptr, all[PVN_STAT_GROW - 1]) << said;
                EXPECT_EQ(nullptr, all.back());
            }
            for (auto *s : all)
                pvn_stat_end(s);
            pvn_stats_close();
            EXPECT_EQ(0, umount(dir.c_str()));
            // A read-only file system, such as a read-only root.
            ASSERT_EQ(0, mount("tmpfs", dir.c_str(), "tmpfs", MS_RDONLY, ""));
            pvn_stats_open(12);
            EXPECT_NE(std::string::npos, said.find("Read-only file system")) << said;
            EXPECT_EQ(0, umount(dir.c_str()));
        }
    }).join();
    if (!why.empty())
        GTEST_SKIP() << "no mount namespace of its own: " << why << " (run as root)";
}

// ---- processes ----

TEST_F(Stats, AChildLeavesTheParentsFileAlone)
{
    pvn_stats_open(12);
    pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, "eth0");
    std::string path = pvn_stats_path(), before = slurp(path);
    child([&] {
        pvn_stat_counts n = {};
        n.msgs = 99;
        pvn_stat_put(s, &n, "from the child");
        pvn_stat_state(s, PVN_STAT_FAILED, "FAILED", "from the child");
        pvn_stat_look(s, pvn_now_ns() + PVN_NS_PER_S);
        if (pvn_stat_new(PVN_STAT_UP, true, "eth0") || pvn_stat_live(s))
            _exit(1);
        pvn_stat_end(s);
    });
    EXPECT_EQ(before, slurp(path));
    pid_t pid = child([&] {
        begin_afresh();
        pvn_stat *own = pvn_stat_new(PVN_STAT_UP, false, "eth0");
        if (!own || path == pvn_stats_path())
            _exit(1);
        pvn_stat_end(s); // the parent's row
    });
    EXPECT_EQ(before, slurp(path));
    ASSERT_EQ(2u, files().size()) << "and its own, for it has not closed";
    for (auto &f : files())
        if (dir + "/" + f != path) {
            Read r(dir + "/" + f);
            EXPECT_EQ(static_cast<uint64_t>(pid), r.s.head.id.pid);
            EXPECT_EQ(PVN_STATS_DEAD, r.s.life);
        }
    pvn_stat_end(s);
}

TEST_F(Stats, AProcessIsSeenAliveStoppedAndKilled)
{
    int p[2];
    ASSERT_EQ(0, pipe(p));
    pid_t pid = fork();
    if (pid == 0) {
        begin_afresh();
        pvn_stat *s = pvn_stat_new(PVN_STAT_UP, true, "eth0");
        pvn_stat_counts n = {};
        n.bytes = 12345;
        pvn_stat_put(s, &n, "");
        if (write(p[1], pvn_stats_path(), strlen(pvn_stats_path())) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    char path[512] = "";
    ASSERT_GT(read(p[0], path, sizeof(path) - 1), 0);
    close(p[0]);
    close(p[1]);
    EXPECT_EQ(PVN_STATS_ALIVE, Read(path).s.life);
    // From another container, only the lock shows that the process lives.
    auto from_elsewhere = [&] {
        Read r(path);
        int fd = open(path, O_RDONLY);
        pvn_stat_ident id = r.s.head.id;
        id.pid_ns++;
        auto life = pvn_stats_life_of(&id, fd, nullptr);
        close(fd);
        return life;
    };
    EXPECT_EQ(PVN_STATS_ALIVE, from_elsewhere());
    // Another process has got the pid.
    {
        Read r(path);
        int fd = open(path, O_RDONLY);
        pvn_stat_ident id = r.s.head.id;
        id.start++;
        EXPECT_EQ(PVN_STATS_DEAD, pvn_stats_life_of(&id, fd, nullptr));
        id = r.s.head.id;
        id.boot_id[0] ^= 1;
        EXPECT_EQ(PVN_STATS_DEAD, pvn_stats_life_of(&id, fd, nullptr)) << "before the last boot";
        id.host[0] ^= 1;
        EXPECT_EQ(PVN_STATS_ELSEWHERE, pvn_stats_life_of(&id, fd, nullptr));
        close(fd);
    }
    kill(pid, SIGSTOP);
    waitpid(pid, nullptr, WUNTRACED);
    {
        Read r(path);
        EXPECT_EQ('T', r.s.state);
        EXPECT_EQ(PVN_STATS_ALIVE, r.s.life);
    }
    kill(pid, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    EXPECT_EQ(PVN_STATS_DEAD, Read(path).s.life) << "its parent has not waited for it yet";
    waitpid(pid, nullptr, 0);
    Read r(path);
    EXPECT_EQ(PVN_STATS_DEAD, r.s.life);
    EXPECT_EQ(PVN_STATS_DEAD, from_elsewhere());
    ASSERT_EQ(1, r.s.nrows);
    EXPECT_EQ(12345u, r.s.row[0].n.bytes);
}

// There the mapping of a file does not hold its lock.
TEST_F(Stats, AFileOnAnOverlayIsLockedAsAnyOther)
{
    mkdir(dir.c_str(), 0700);
    for (const char *d : {"/low", "/up", "/work"})
        mkdir((top + d).c_str(), 0700);
    const std::string layers =
        "lowerdir=" + top + "/low,upperdir=" + top + "/up,workdir=" + top + "/work";
    std::string why;
    std::thread([&] {
        if (unshare(CLONE_NEWNS | CLONE_FS) != 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("overlay", dir.c_str(), "overlay", 0, layers.c_str()) != 0) {
            why = strerror(errno);
            return;
        }
        pvn_stats_open(12);
        ASSERT_STRNE("", pvn_stats_path()) << said;
        EXPECT_EQ(PVN_STATS_ALIVE, Read(pvn_stats_path()).s.life);
        pvn_stats_close();
        EXPECT_EQ(0, umount(dir.c_str())) << "a descriptor is left open";
    }).join();
    if (!why.empty())
        GTEST_SKIP() << "no overlay file system here: " << why << " (run as root)";
}

// ---- what is removed ----

TEST_F(Stats, OldFilesOfDeadProcessesGo)
{
    const uint64_t hour = 3600 * PVN_NS_PER_S;
    std::string young = dead_file(1, [](pvn_stat_head *) {});
    dead_file(2, [](pvn_stat_head *h) { h->open = 0; });
    std::string failed = dead_file(3, [](pvn_stat_head *h) {
        h->open = 0;
        h->failed = 1;
    });
    dead_file(4, [&](pvn_stat_head *h) { h->real_ns -= 25 * hour; });
    std::string worked = dead_file(5, [&](pvn_stat_head *h) {
        h->real_ns -= 100 * hour; // started long ago, but wrote until now
        h->touched_ns = h->mono_ns + 100 * hour;
    });
    std::string foreign = "notes.stat", near = "1-2-3.statx";
    spill(dir + "/" + foreign, "mine");
    spill(dir + "/" + near, "mine");
    pvn_stats_open(12);
    std::string own = strrchr(pvn_stats_path(), '/') + 1;
    EXPECT_EQ((std::set<std::string>{young, failed, worked, foreign, near, own}), files());

    int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(0, pvn_stats_sweep(fd, geteuid() + 1, true)) << "another user's";
    spill(dir + "/77-1-0.stat", "no statistics at all");
    EXPECT_EQ(4, pvn_stats_sweep(fd, geteuid(), true));
    close(fd);
    EXPECT_EQ((std::set<std::string>{foreign, near, own}), files()) << "who lives keeps his";
}

TEST_F(Stats, NotTooManyFilesOfDeadProcesses)
{
    for (int i = 0; i < PVN_STATS_KEEP + 6; i++)
        dead_file(i + 100,
                  [&](pvn_stat_head *h) { h->real_ns -= static_cast<uint64_t>(i) * PVN_NS_PER_S; });
    pvn_stats_open(12);
    auto left = files();
    EXPECT_EQ(PVN_STATS_KEEP + 1u, left.size());
    EXPECT_TRUE(left.count("1-100-0.stat")) << "the youngest";
    EXPECT_FALSE(left.count("1-165-0.stat"));
}

} // namespace
