// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests malicious and broken roots: loops, dangling links, links out of the root, pipes, junk, too many of everything.
// Each gives an error with a sentence, or a model with a note.
#include "tests/topo/tree.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "topo/capture/open.h"
#include "topo/fs.h"

namespace fs = std::filesystem;

// ---- resolution of paths, the same in both stores

class Store
{
  public:
    Store(const Tree &tree, bool as_dir)
    {
        pvn_topo_err err = {""};

        if (as_dir) {
            tree.write_dir(dir.path);
            EXPECT_EQ(pvn_topo_fs_open_dir(dir.path.c_str(), nullptr, &store), 0);
        } else {
            std::string image = tree.tar();

            EXPECT_EQ(pvn_topo_fs_open_tar(image.data(), image.size(), &store, &err), 0)
                << err.text;
        }
    }
    ~Store()
    {
        pvn_topo_fs_close(store);
    }
    std::string resolve(const std::string &path, int *rc = nullptr)
    {
        char out[PVN_TOPO_FS_PATH_MAX] = "";
        int r = pvn_topo_fs_resolve(store, path.c_str(), out);

        if (rc != nullptr) {
            *rc = r;
        }
        return r == 0 ? out : "";
    }
    int error(const std::string &path)
    {
        int rc;

        resolve(path, &rc);
        return rc;
    }
    TempDir dir;
    pvn_topo_fs *store = nullptr;
};

class Stores : public testing::TestWithParam<bool>
{
};

TEST_P(Stores, LinksStayInside)
{
    Tree t;

    t.file("/sys/a/b/file", "x");
    t.link("/sys/absolute", "/sys/a");
    t.link("/sys/relative", "a/b");
    t.link("/sys/a/up", "../../../../../../sys/a/b");
    t.link("/sys/chain", "absolute/up/file");
    t.link("/sys/outside", "/etc/passwd");
    t.link("/sys/above", "../../../../../../../../../../etc/passwd");
    t.link("/sys/loop1", "loop2");
    t.link("/sys/loop2", "loop1");
    t.link("/sys/self", "self/x");
    t.link("/sys/dangling", "nowhere");
    t.link("/sys/long", std::string(3000, 'x') + "/y");
    t.link("/sys/twice", std::string(2500, '/') + "sys/twice2");
    t.link("/sys/twice2", std::string(2500, '/') + "sys/a");
    Store s(t, GetParam());

    EXPECT_EQ(s.resolve("/sys/absolute/b/file"), "/sys/a/b/file");
    EXPECT_EQ(s.resolve("/sys/relative/file"), "/sys/a/b/file");
    EXPECT_EQ(s.resolve("/sys/a/up/file"), "/sys/a/b/file");
    EXPECT_EQ(s.resolve("/sys/chain"), "/sys/a/b/file");
    EXPECT_EQ(s.resolve("//sys/./a/../a//b"), "/sys/a/b");
    EXPECT_EQ(s.resolve("/../../.."), "/");
    EXPECT_EQ(s.error("/sys/outside"), -ENOENT) << "the root has no etc";
    EXPECT_EQ(s.error("/sys/above"), -ENOENT);
    EXPECT_EQ(s.error("/sys/loop1"), -ELOOP);
    EXPECT_EQ(s.error("/sys/self"), -ELOOP);
    EXPECT_EQ(s.error("/sys/dangling"), -ENOENT);
    EXPECT_LT(s.error("/sys/long"), 0);
    EXPECT_EQ(s.resolve("/sys/twice/b"), "/sys/a/b");
    EXPECT_EQ(s.error(std::string(5000, 'x')), -ENAMETOOLONG);
    EXPECT_EQ(s.error("/sys/a/b/file/more"), s.error("/sys/a/b/file/more"));
    EXPECT_NE(s.error("/sys/a/b/file/more"), 0);

    char buf[8];
    EXPECT_EQ(pvn_topo_fs_read(s.store, "/sys/chain", buf, sizeof buf), 1);
    EXPECT_EQ(pvn_topo_fs_read(s.store, "/sys/a", buf, sizeof buf), -EINVAL) << "a directory";
    EXPECT_EQ(pvn_topo_fs_type(s.store, "/sys/relative"), PVN_TOPO_FS_DIR);
    EXPECT_EQ(pvn_topo_fs_type(s.store, "/sys/dangling"), PVN_TOPO_FS_NONE);
}

TEST_P(Stores, ListsAndWholeFiles)
{
    Tree t;
    std::string big(100000, 'z');
    char *text;
    size_t len;
    pvn_topo_fs_names names;

    t.file("/sys/d/a-b", "");
    t.file("/sys/d/a/c", "");
    t.file("/sys/d/a.x/c", "");
    t.file("/sys/d/a/d", "");
    t.file("/proc/big", big);
    t.file("/proc/empty", "");
    Store s(t, GetParam());

    ASSERT_EQ(pvn_topo_fs_list(s.store, "/sys/d", &names), 0);
    ASSERT_EQ(names.n, 3);
    EXPECT_STREQ(names.name[0], "a");
    EXPECT_STREQ(names.name[1], "a-b");
    EXPECT_STREQ(names.name[2], "a.x");
    pvn_topo_fs_names_free(&names);
    EXPECT_LT(pvn_topo_fs_list(s.store, "/sys/d/a-b", &names), 0);
    EXPECT_EQ(pvn_topo_fs_list(s.store, "/sys/none", &names), -ENOENT);
    ASSERT_EQ(pvn_topo_fs_read_all(s.store, "/proc/big", 1 << 20, &text, &len), 0);
    EXPECT_EQ(std::string(text, len), big);
    free(text);
    EXPECT_EQ(pvn_topo_fs_read_all(s.store, "/proc/big", 50000, &text, &len), -EFBIG);
    ASSERT_EQ(pvn_topo_fs_read_all(s.store, "/proc/empty", 10, &text, &len), 0);
    EXPECT_EQ(len, 0u);
    free(text);
}

INSTANTIATE_TEST_SUITE_P(DirectoryAndTar, Stores, testing::Bool());

TEST(Dir, PipesAndDevicesAreNotOpened)
{
    TempDir dir;
    Tree tree;

    tree.pci("pci0000:17", "0000:17:00.0", Pci::nic());
    tree.write_dir(dir.path);
    std::string d = dir.path + "/sys/devices/pci0000:17/0000:17:00.0/";
    fs::remove(d + "class");
    ASSERT_EQ(mkfifo((d + "class").c_str(), 0600), 0); // opening it would wait for a writer
    fs::remove(d + "vendor");
    fs::create_directory(d + "vendor");
    Topo t = load_dir(dir.path);
    EXPECT_EQ(t->pci[0].class_code, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(t->pci[0].vendor, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(t->pci[0].device, 0x101b);
}

TEST(Dir, NothingOutsideTheRootIsRead)
{
    TempDir outside, dir;
    const char canary[] = "CANARY";

    // A machine outside the root, and links to it from every level inside.
    for (const char *f :
         {"class", "vendor", "numa_node", "driver", "config", "state", "0", "mtu", "type"}) {
        std::ofstream(outside.path + "/" + f) << canary;
    }
    fs::create_directories(outside.path + "/0000:aa:00.0");
    std::ofstream(outside.path + "/0000:aa:00.0/numa_node") << canary;
    Tree t;
    std::string nic = t.pci("pci0000:17", "0000:17:00.0", Pci::nic());
    std::string d = "/sys/devices/" + nic + "/";

    t.rdma("mlx5_0", nic, "Ethernet",
           {{0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2", "e"}});
    t.net("eth0", nic);
    t.remove(d + "numa_node");
    t.link(d + "numa_node", outside.path + "/numa_node");
    t.remove(d + "infiniband/mlx5_0/ports/1/gid_attrs/types");
    t.link(d + "infiniband/mlx5_0/ports/1/gid_attrs/types", outside.path);
    t.remove(d + "infiniband/mlx5_0/ports/1/gid_attrs/ndevs");
    t.link(d + "infiniband/mlx5_0/ports/1/gid_attrs/ndevs", outside.path);
    t.link("/sys/bus/pci/devices/0000:aa:00.0", outside.path + "/0000:aa:00.0");
    t.link("/sys/devices/system/node", outside.path);
    t.link("/sys/class/dmi/id", outside.path);
    t.link("/proc/version", outside.path + "/class");
    t.link("/proc/cpuinfo", outside.path + "/class");
    t.link("/sys/class/net/out", outside.path);
    t.write_dir(dir.path);
    Topo m = load_dir(dir.path);

    ASSERT_TRUE(m);
    EXPECT_EQ(m->pci[0].numa, PVN_TOPO_UNKNOWN);
    EXPECT_STREQ(m->pci[0].numa_text, "");
    EXPECT_STREQ(m->rdmas[0].ports[0].gids[0].ndev, "");
    EXPECT_EQ(m->rdmas[0].ports[0].gids[0].type, PVN_TOPO_GID_UNKNOWN);
    EXPECT_STREQ(m->kernel, "");
    EXPECT_EQ(pvn_topo_find_net(m.get(), "out"), -1);
    for (int i = 0; i < m->nnotes; i++) {
        EXPECT_EQ(strstr(m->notes[i].text, canary), nullptr);
    }
    int aa = pvn_topo_find_pci(m.get(), "aa:00.0");
    ASSERT_GE(aa, 0);
    EXPECT_TRUE(m->pci[aa].flags & PVN_TOPO_PCI_NO_PATH);
}

TEST(Hostile, LoopsAndDanglingLinksLeaveNotes)
{
    Tree t;

    t.lists();
    t.link("/sys/bus/pci/devices/0000:01:00.0", "0000:02:00.0");
    t.link("/sys/bus/pci/devices/0000:02:00.0", "0000:01:00.0");
    t.link("/sys/bus/pci/devices/0000:03:00.0", "../../../devices/pci0000:00/0000:03:00.0");
    t.link("/sys/bus/pci/devices/0000:04:00.0", "../../../devices/pci0000:00/0000:05:00.0");
    t.file("/sys/devices/pci0000:00/0000:05:00.0/class", "0x020000\n");
    t.link("/sys/bus/pci/devices/not-an-address", "x");
    t.pci("pci0000:00", "0000:06:00.0", Pci::nic());
    Topo m = load(t);

    ASSERT_EQ(m->npci, 5);
    for (int i = 0; i < 4; i++) {
        EXPECT_TRUE(m->pci[i].flags & PVN_TOPO_PCI_NO_PATH) << m->pci[i].bdf;
        EXPECT_EQ(m->pci[i].root, -1);
    }
    EXPECT_EQ(m->pci[4].root, 0);
    EXPECT_EQ(m->nnotes, 5);
}

TEST(Hostile, PathsThatContradictEachOther)
{
    Tree t;

    // A is above B in one path and B above A in the other. A third path visits A twice.
    t.link("/sys/bus/pci/devices/0000:02:00.0",
           "../../../devices/pci0000:00/0000:01:00.0/0000:02:00.0");
    t.file("/sys/devices/pci0000:00/0000:01:00.0/0000:02:00.0/class", "0x060400\n");
    t.link("/sys/bus/pci/devices/0000:01:00.0",
           "../../../devices/pci0000:00/0000:02:00.0/0000:01:00.0");
    t.file("/sys/devices/pci0000:00/0000:02:00.0/0000:01:00.0/class", "0x060400\n");
    t.link("/sys/bus/pci/devices/0000:03:00.0",
           "../../../devices/pci0000:00/0000:01:00.0/0000:02:00.0/0000:01:00.0/0000:03:00.0");
    t.file("/sys/devices/pci0000:00/0000:01:00.0/0000:02:00.0/0000:01:00.0/0000:03:00.0/class",
           "0x020000\n");
    Topo m = load(t);

    ASSERT_EQ(m->npci, 3);
    EXPECT_GT(m->nnotes, 0);
    for (int i = 0; i < m->npci; i++) {
        int steps = 0;

        for (int up = i; up >= 0 && steps < 10; up = m->pci[up].parent) {
            steps++;
        }
        EXPECT_LT(steps, 10) << "parents close to a loop";
        for (int k = 0; k < m->npci; k++) {
            pvn_topo_distance d;

            pvn_topo_find_distance(m.get(), i, k, &d);
        }
    }
}

TEST(Hostile, TooManyOfAThingIsAnError)
{
    Tree t;
    int rc;

    for (int i = 0; i < 16385; i++) {
        char bdf[32];

        snprintf(bdf, sizeof bdf, "%04x:%02x:%02x.%d", i >> 16, i >> 8 & 255, i >> 3 & 31, i & 7);
        t.file(std::string("/sys/bus/pci/devices/") + bdf + "/x", "");
    }
    std::string error = load_error(t.tar(), &rc);
    EXPECT_EQ(rc, -E2BIG);
    EXPECT_NE(error.find("more than 16384 PCI functions"), std::string::npos) << error;

    Tree nodes;
    for (int i = 0; i < 1025; i++) {
        nodes.numa(i, "1", "0", "10");
    }
    error = load_error(nodes.tar(), &rc);
    EXPECT_EQ(rc, -E2BIG);
    EXPECT_NE(error.find("NUMA nodes"), std::string::npos) << error;

    Tree names;
    for (int i = 0; i < 16385; i++) {
        names.file("/sys/class/net/e" + std::to_string(i) + "/mtu", "1");
    }
    error = load_error(names.tar(), &rc);
    EXPECT_EQ(rc, -E2BIG);
    EXPECT_NE(error.find("network interfaces"), std::string::npos) << error;
}

TEST(Hostile, AChainOfManyBridgesIsRead)
{
    Tree t;
    std::string path = "pci0000:00";

    for (int i = 0; i < 250; i++) {
        char bdf[32];

        snprintf(bdf, sizeof bdf, "0000:%02x:00.0", i);
        path = t.pci(path, bdf, Pci::bridge());
    }
    Topo m = load(t);
    EXPECT_EQ(m->pci[249].depth, 249);
    pvn_topo_distance d;
    pvn_topo_find_distance(m.get(), 0, 249, &d);
    EXPECT_EQ(d.hops, 249);
}

TEST(Hostile, LongAndBinaryNames)
{
    Tree t;

    t.lists();
    std::string nic = t.pci("pci0000:17", "0000:17:00.0", Pci::nic());

    t.net(std::string(200, 'n'), nic);
    t.net("\x1b[31mred\xff", nic);
    t.rdma(std::string(200, 'r'), nic, "Ethernet", {});
    t.rdma("dev", nic, "Ethernet", {});
    t.file("/sys/devices/" + nic + "/infiniband/dev/ports/1/state", "\x1b[2J\n");
    t.file("/sys/devices/" + nic + "/infiniband/dev/fw_ver", std::string("a\0b\n", 4));
    t.file("/sys/devices/" + nic + "/infiniband/dev/ports/999999999999/state", "4: ACTIVE\n");
    t.file("/sys/devices/" + nic + "/infiniband/dev/ports/-1/state", "4: ACTIVE\n");
    Topo m = load(t);

    ASSERT_EQ(m->nnets, 1);
    EXPECT_STREQ(m->nets[0].name, "?[31mred?");
    ASSERT_EQ(m->nrdmas, 1);
    EXPECT_STREQ(m->rdmas[0].fw_ver, "a?b");
    EXPECT_EQ(m->rdmas[0].nports, 1);
    EXPECT_EQ(m->rdmas[0].ports[0].state, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(m->nnotes, 5);
}

TEST(Hostile, NotesAreBounded)
{
    Tree t;

    t.lists();
    for (int i = 0; i < 200; i++) {
        t.file("/sys/bus/pci/devices/junk" + std::to_string(i), "");
    }
    Topo m = load(t);
    EXPECT_EQ(m->nnotes, 64);
    EXPECT_EQ(m->notes_dropped, 136);
}

// ---- files that are neither roots nor tar files

TEST(Root, ARootThatIsNoneIsNamed)
{
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;
    TempDir dir;

    EXPECT_EQ(pvn_topo_load("/nonexistent", nullptr, &t, &err), -ENOENT);
    EXPECT_NE(strstr(err.text, "/nonexistent: No such file"), nullptr) << err.text;
    EXPECT_EQ(pvn_topo_load(dir.path.c_str(), nullptr, &t, &err), -EINVAL);
    EXPECT_NE(strstr(err.text, "neither sys/ nor proc/"), nullptr) << err.text;
    std::ofstream(dir.path + "/file") << "hello";
    EXPECT_EQ(pvn_topo_load((dir.path + "/file").c_str(), nullptr, &t, &err), -EINVAL);
    EXPECT_NE(strstr(err.text, dir.path.c_str()), nullptr) << err.text;
    ASSERT_EQ(mkfifo((dir.path + "/pipe").c_str(), 0600), 0);
    EXPECT_EQ(pvn_topo_load((dir.path + "/pipe").c_str(), nullptr, &t, &err), -ENOTDIR);
    EXPECT_EQ(t, nullptr);
}

TEST(Tar, BrokenFilesAreErrors)
{
    std::string good = vmware_guest({}).tar();
    int rc;

    EXPECT_NE(load_error("", &rc).find("without a single file"), std::string::npos);
    EXPECT_EQ(rc, -EINVAL);
    load_error(std::string(1024, '\0'), &rc);
    EXPECT_EQ(rc, -EINVAL);
    std::string bad = good;
    bad[512 * 4] ^= 1;
    for (size_t at = 0; at + 512 < bad.size(); at += 512) {
        if (memcmp(&bad[at + 257], "ustar", 5) == 0) {
            bad[at] ^= 1; // the checksum of some header no longer fits
        }
    }
    EXPECT_NE(load_error(bad, &rc).find("bad header at byte 0"), std::string::npos);
    EXPECT_NE(
        load_error("BZh91AY&SY" + std::string(2000, 'x'), &rc).find("not an (uncompressed) tar"),
        std::string::npos);
    EXPECT_EQ(rc, -EINVAL);

    Tree dots;
    dots.file("/sys/../../etc/passwd", "x");
    EXPECT_NE(load_error(dots.tar(), &rc).find("\"..\" in its name"), std::string::npos);
}

TEST(Tar, CutAnywhereIsSurvived)
{
    std::string good = vmware_guest({}).tar();

    for (size_t cut = 0; cut < good.size(); cut += 4099) {
        int rc;

        load_error(good.substr(0, cut), &rc);
    }
}

TEST(Tar, DamagedBytesAreSurvived)
{
    std::string good = server8x8(true, true).tar();
    std::mt19937 rng(7);

    for (int round = 0; round < 30; round++) {
        std::string bad = good;
        int rc;

        for (int i = 0; i < 20; i++) {
            // The damage is to contents only, because checksums protect the headers.
            size_t at = rng() % bad.size();

            if (bad[at] != '\0' && memcmp(&bad[at / 512 * 512 + 257], "ustar", 5) != 0) {
                bad[at] = (char)rng();
            }
        }
        load_error(bad, &rc);
    }
}

TEST(Tar, PaxAndPrefixNames)
{
    // Written by hand: a pax header with a long path, and a ustar prefix.
    auto header = [](char type, const std::string &name, const std::string &prefix, size_t size) {
        std::string h(512, '\0');
        unsigned sum = 0;

        memcpy(&h[0], name.data(), name.size());
        snprintf(&h[124], 12, "%011zo", size);
        h[156] = type;
        memcpy(&h[257], "ustar\00000", 8);
        memcpy(&h[345], prefix.data(), prefix.size());
        memset(&h[148], ' ', 8);
        for (unsigned char c : h) {
            sum += c;
        }
        snprintf(&h[148], 8, "%06o", sum);
        return h;
    };
    auto pad = [](std::string s) {
        s.append((512 - s.size() % 512) % 512, '\0');
        return s;
    };
    std::string record = "path=proc/version\n";
    record = std::to_string(record.size() + 3) + " " + record;
    std::string version = "Linux version 9.9.9-test (x)\n";
    std::string image = header('x', "pax", "", record.size()) + pad(record) +
                        header('0', "short", "", version.size()) + pad(version) +
                        header('0', "cpuinfo", "proc", 0) + header('5', "sys/", "", 0) +
                        std::string(1024, '\0');
    pvn_topo_err err = {""};
    pvn_topo *t = nullptr;

    ASSERT_EQ(pvn_topo_load_tar(image.data(), image.size(), nullptr, &t, &err), 0) << err.text;
    EXPECT_STREQ(t->kernel, "9.9.9-test");
    pvn_topo_free(t);
}
