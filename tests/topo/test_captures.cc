// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the model of real machines: compares the sysfs captures of ../shared/topologies with the facts in its INDEX,
// and with hwloc's reading of the same files.
#include "tests/topo/hwloc_line.h"
#include "tests/topo/tree.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace fs = std::filesystem;

static std::string capture_file(const std::string &name)
{
    std::string shared = shared_dir();
    std::string path = shared + "/topologies/sysfs/" + name + ".tar.bz2";

    return !shared.empty() && fs::exists(path) ? path : "";
}

// A capture as a tar image in memory. unpack() writes it to a directory, for programs that need one.
class Capture
{
  public:
    explicit Capture(const std::string &name) : file(capture_file(name))
    {
        if (file.empty()) {
            why = "no " + name + ".tar.bz2 in ../shared/topologies/sysfs (set PVN_SHARED)";
            return;
        }
        FILE *p = popen(("bzip2 -dc '" + file + "' 2>/dev/null").c_str(), "r");
        char buf[65536];
        size_t got;

        while (p != nullptr && (got = fread(buf, 1, sizeof buf, p)) > 0) {
            image.append(buf, got);
        }
        if (p == nullptr || pclose(p) != 0) {
            why = "bzip2 cannot unpack " + file;
        }
    }
    Topo load() const
    {
        pvn_topo_err err = {""};
        pvn_topo *t = nullptr;

        EXPECT_EQ(pvn_topo_load_tar(image.data(), image.size(), nullptr, &t, &err), 0) << err.text;
        return Topo(t);
    }
    // Returns the directory that contains sys/.
    std::string unpack()
    {
        std::string command = "tar -C " + dir.path + " -xjf '" + file + "' 2>/dev/null";

        EXPECT_EQ(system(command.c_str()), 0);
        for (const auto &e : fs::directory_iterator(dir.path)) {
            if (fs::is_directory(e.path() / "sys")) {
                return e.path();
            }
        }
        ADD_FAILURE() << "no sys/ in " << file;
        return "";
    }
    std::string file, image, why;

  private:
    TempDir dir;
};

#define CAPTURE_OR_SKIP(c)                                                                         \
    if (!(c).why.empty()) {                                                                        \
        GTEST_SKIP() << (c).why;                                                                   \
    }

static const pvn_topo_pci &fn(const Topo &t, const char *bdf)
{
    int i = pvn_topo_find_pci(t.get(), bdf);

    EXPECT_GE(i, 0) << bdf;
    return t->pci[i >= 0 ? i : 0];
}

static pvn_topo_distance distance(const Topo &t, const char *a, const char *b)
{
    pvn_topo_distance d;

    pvn_topo_find_distance(t.get(), pvn_topo_find_pci(t.get(), a), pvn_topo_find_pci(t.get(), b),
                           &d);
    return d;
}

static int count_kind(const Topo &t, pvn_topo_pci_kind kind)
{
    int n = 0;

    for (int i = 0; i < t->npci; i++) {
        n += t->pci[i].kind == kind;
    }
    return n;
}

TEST(Captures, EightVectorEnginesAreFound)
{
    Capture c("32intel64-2p8co2t+8ve");
    CAPTURE_OR_SKIP(c);
    Topo t = c.load();
    ASSERT_TRUE(t);

    EXPECT_EQ(t->npci, 29);
    EXPECT_EQ(t->ngpus, 8);
    for (int i = 0; i < t->ngpus; i++) {
        EXPECT_EQ(t->gpus[i].kind, PVN_TOPO_GPU_ACCEL);
    }
    EXPECT_EQ(t->nnumas, 2);
    EXPECT_EQ(t->guest.hypervisor, PVN_TOPO_HV_NONE);
    // 17 bridges: three root ports, the two switches and the X722's own.
    EXPECT_EQ(count_kind(t, PVN_TOPO_PCI_ROOT_PORT), 3);
    EXPECT_EQ(count_kind(t, PVN_TOPO_PCI_SWITCH_UP), 3);
    EXPECT_EQ(count_kind(t, PVN_TOPO_PCI_SWITCH_DOWN), 11);
    EXPECT_EQ(fn(t, "5f:03.0").kind, PVN_TOPO_PCI_SWITCH_DOWN)
        << "on the path, without an entry of its own";
    EXPECT_EQ(fn(t, "18:00.0").kind, PVN_TOPO_PCI_SWITCH_UP);
    EXPECT_EQ(fn(t, "3b:00.0").kind, PVN_TOPO_PCI_SWITCH_UP);
    for (const char *bdf : {"18:00.0", "1a:00.0", "1b:00.0", "3b:00.0", "3e:00.0", "41:00.0"}) {
        EXPECT_EQ(fn(t, bdf).link.speed_max_mts, 8000) << bdf;
        EXPECT_EQ(fn(t, bdf).link.width_max, 16) << bdf;
        EXPECT_EQ(fn(t, bdf).numa, 0) << bdf;
    }
    EXPECT_EQ(fn(t, "1a:00.0").class_code >> 8, 0x0207);
    EXPECT_EQ(fn(t, "5f:03.0").link.speed_max_mts, 2500);
    EXPECT_EQ(fn(t, "5f:03.0").link.width_max, 1);
    // The config files have 64 bytes, so capabilities are unreadable, not absent.
    EXPECT_EQ(fn(t, "1a:00.0").config.bytes, 64);
    EXPECT_EQ(fn(t, "1a:00.0").config.acs, PVN_TOPO_CAP_NOT_READABLE);
    EXPECT_EQ(fn(t, "1a:00.0").config.ats, PVN_TOPO_CAP_NOT_READABLE);
    // Inside a switch PIX, across the two switches NODE (NCCL: PHB).
    for (const char *ve : {"1b:00.0", "1c:00.0", "1d:00.0", "1e:00.0"}) {
        EXPECT_EQ(distance(t, ve, "1a:00.0").smi, PVN_TOPO_SMI_PIX) << ve;
        EXPECT_EQ(distance(t, ve, "3e:00.0").smi, PVN_TOPO_SMI_NODE) << ve;
        EXPECT_EQ(distance(t, ve, "60:00.0").smi, PVN_TOPO_SMI_NODE) << ve;
        EXPECT_EQ(distance(t, ve, "1a:00.0").trust, PVN_TOPO_TRUST_MEASURED);
    }
    for (const char *ve : {"3d:00.0", "3f:00.0", "40:00.0", "41:00.0"}) {
        EXPECT_EQ(distance(t, ve, "3e:00.0").smi, PVN_TOPO_SMI_PIX) << ve;
    }
    EXPECT_EQ(distance(t, "60:00.0", "60:00.1").smi, PVN_TOPO_SMI_PIX);

    pvn_topo_checks rows;
    ASSERT_EQ(pvn_topo_run_checks(t.get(), nullptr, 0, &rows), 0);
    bool slow_x722 = false, nearest = false;
    for (int i = 0; i < rows.n; i++) {
        EXPECT_NE(rows.rows[i].level, PVN_TOPO_LEVEL_FAIL) << rows.rows[i].text;
        nearest |= strcmp(rows.rows[i].id, "acs") == 0 &&
                   strcmp(rows.rows[i].subject, "0000:1b:00.0 - 0000:1a:00.0") == 0;
        slow_x722 |=
            strcmp(rows.rows[i].id, "link") == 0 && strstr(rows.rows[i].subject, "60:00.0");
    }
    EXPECT_TRUE(slow_x722);
    EXPECT_TRUE(nearest) << "without an RDMA device the nearest network function is looked at";
    pvn_topo_checks_free(&rows);
}

TEST(Captures, ADisplayIsNoGpuOnADellR910)
{
    Capture c("40intel64-2g2n4c+pcilocality");
    CAPTURE_OR_SKIP(c);
    Topo t = c.load();
    ASSERT_TRUE(t);

    EXPECT_EQ(t->npci, 37);
    EXPECT_EQ(t->nnumas, 4);
    EXPECT_EQ(t->ngpus, 0) << "the Matrox display is no GPU";
    ASSERT_EQ(t->nrdmas, 1);
    EXPECT_STREQ(t->rdmas[0].driver, "ib_qib");
    EXPECT_EQ(t->rdmas[0].pci, pvn_topo_find_pci(t.get(), "43:00.0"));
    EXPECT_EQ(t->nnets, 5);
    EXPECT_EQ(t->cpu.sockets, 4);
    // This old kernel has no link files for bridges. Their speed is unknown, not zero.
    EXPECT_EQ(fn(t, "40:03.0").link.speed_max_mts, PVN_TOPO_UNKNOWN);
    EXPECT_EQ(fn(t, "40:03.0").kind, PVN_TOPO_PCI_ROOT_PORT);
    EXPECT_EQ(fn(t, "00:1e.0").kind, PVN_TOPO_PCI_BRIDGE);
}

TEST(Captures, EachRootHasTheNodeThatItsMachineSays)
{
    Capture c("fakepcilocalities");
    CAPTURE_OR_SKIP(c);
    Topo t = c.load();
    ASSERT_TRUE(t);

    EXPECT_EQ(t->npci, 30);
    EXPECT_EQ(t->nroots, 4);
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(t->roots[i].numa, i) << t->roots[i].name;
    }
    EXPECT_EQ(distance(t, "02:00.0", "43:00.0").smi, PVN_TOPO_SMI_SYS);
    EXPECT_EQ(distance(t, "02:00.0", "03:00.0").smi, PVN_TOPO_SMI_PHB);
    EXPECT_EQ(distance(t, "02:00.0", "02:00.1").smi, PVN_TOPO_SMI_PIX);
}

TEST(Captures, LocalitiesThatContradictAreRead)
{
    Capture c("40intel64-4n10c+pci-conflicts");
    CAPTURE_OR_SKIP(c);
    Topo t = c.load();

    ASSERT_TRUE(t);
    EXPECT_EQ(t->npci, 3);
    EXPECT_EQ(t->nnumas, 4);
    EXPECT_EQ(count_kind(t, PVN_TOPO_PCI_ROOT_PORT), 1);
}

TEST(Captures, Power9WithGpuMemoryNodes)
{
    Capture c("nvidiagpunumanodes");
    CAPTURE_OR_SKIP(c);
    Topo t = c.load();
    int without_cpus = 0;

    ASSERT_TRUE(t);
    EXPECT_EQ(t->npci, 6);
    EXPECT_EQ(t->ngpus, 6) << "known to the driver's own directory";
    EXPECT_EQ(t->nvidia.loaded, PVN_TOPO_TRI_YES) << "which is there while the driver is";
    EXPECT_EQ(t->nnumas, 8);
    for (int i = 0; i < t->nnumas; i++) {
        without_cpus += !t->numas[i].has_cpus;
    }
    EXPECT_EQ(without_cpus, 6);
    EXPECT_EQ(t->cpu.arch, PVN_TOPO_ARCH_PPC64);
    EXPECT_EQ(fn(t, "0004:05:00.0").vendor, PVN_TOPO_UNKNOWN);
    EXPECT_TRUE(fn(t, "0004:05:00.0").flags & PVN_TOPO_PCI_NO_PATH);
    EXPECT_EQ(distance(t, "0004:05:00.0", "0035:04:00.0").smi, PVN_TOPO_SMI_UNKNOWN);
    EXPECT_EQ(t->nnotes, 9) << "six functions without a place, three lists";
}

// ---- hwloc

struct Seen {
    std::string parent; // bridge above, "" on a root bus
    int numa = -1;      // node of the object that the host bridge hangs on, -1 when it has several
    std::string ids;    // "0207 [15b3:1013]"
    double gbytes = 0;  // link speed as hwloc computes it from the current values, 0 unknown
};

// hwloc's XML has one element per line. The lines that open and close an object give the nesting.
static std::map<std::string, Seen> parse_hwloc(const std::string &xml)
{
    std::map<std::string, Seen> out;
    struct Open {
        std::string bridge; // busid of a PCI bridge
        int numa;
    };
    std::vector<Open> stack;
    std::istringstream in(xml);
    std::string line;

    while (std::getline(in, line)) {
        if (line.find("</object>") != std::string::npos) {
            stack.pop_back();
            continue;
        }
        if (line.find("<object ") == std::string::npos) {
            continue;
        }
        std::string type = attribute(line, "type"), bdf = attribute(line, "pci_busid");

        if (!bdf.empty()) {
            Seen s;

            for (auto it = stack.rbegin(); it != stack.rend() && s.parent.empty(); ++it) {
                s.parent = it->bridge;
            }
            s.numa = stack.empty() ? -1 : stack.back().numa;
            s.ids = attribute(line, "pci_type").substr(0, 16);
            s.gbytes = atof(attribute(line, "pci_link_speed").c_str());
            out[bdf] = s;
        }
        if (line.find("/>") == std::string::npos) {
            unsigned long nodes = strtoul(attribute(line, "nodeset").c_str(), nullptr, 16);
            int numa = stack.empty() ? -1 : stack.back().numa;

            if (nodes != 0) {
                numa = (nodes & (nodes - 1)) == 0 ? __builtin_ctzl(nodes) : -1;
            }
            stack.push_back({type == "Bridge" ? bdf : "", numa});
        }
    }
    return out;
}

// Runs lstopo on the root and returns its XML; "" and a reason if lstopo cannot be used.
static std::string run_lstopo(const std::string &root, const TempDir &dir, std::string *why)
{
    std::string out = dir.path + "/hwloc.xml";
    std::string command = "HWLOC_FSROOT=" + root +
                          " HWLOC_COMPONENTS=linux,stop HWLOC_THISSYSTEM=0 timeout 60 lstopo "
                          "--whole-io --no-legend --of xml " +
                          out + " >" + dir.path + "/lstopo.log 2>&1 </dev/null";
    int rc = system(command.c_str());

    if (WIFEXITED(rc) && WEXITSTATUS(rc) == 127) {
        *why = "lstopo (hwloc) is not installed";
        return "";
    }
    std::ifstream in(out);
    std::stringstream text;
    text << in.rdbuf();
    *why = rc != 0 ? "lstopo cannot read a foreign root here" : "";
    return rc == 0 ? text.str() : "";
}

static void compare_with_hwloc(Capture &c, int at_least)
{
    std::string root = c.unpack();
    TempDir dir;
    std::string why, xml = run_lstopo(root, dir, &why);

    if (xml.empty()) {
        GTEST_SKIP() << why;
    }
    std::map<std::string, Seen> seen = parse_hwloc(xml);
    Topo t = load_dir(root); // as a directory, where the other tests read the tar
    ASSERT_TRUE(t);
    int compared = 0, speeds = 0, nodes = 0;

    for (const auto &s : seen) {
        int i = pvn_topo_find_pci(t.get(), s.first.c_str());

        ASSERT_GE(i, 0) << s.first << " is known to hwloc only";
        const pvn_topo_pci &p = t->pci[i];
        int parent = p.parent;
        // hwloc knows only functions with an entry of their own, not those that appear in paths alone.
        while (parent >= 0 && seen.count(t->pci[parent].bdf) == 0) {
            parent = t->pci[parent].parent;
        }
        EXPECT_EQ(parent >= 0 ? t->pci[parent].bdf : "", s.second.parent) << s.first;
        char ids[32];
        snprintf(ids, sizeof ids, "%04x [%04x:%04x]", p.class_code >> 8, p.vendor, p.device);
        EXPECT_EQ(ids, s.second.ids) << s.first;
        if (p.numa >= 0 && s.second.numa >= 0) {
            EXPECT_EQ(p.numa, s.second.numa) << s.first;
            nodes++;
        }
        compared++;
        int mbytes = pvn_topo_link_mbytes(p.link.speed_mts, p.link.width);
        if (s.second.gbytes > 0 && mbytes != PVN_TOPO_UNKNOWN) {
            EXPECT_NEAR(mbytes / 1000.0, s.second.gbytes, 0.05 + s.second.gbytes / 50) << s.first;
            speeds++;
        }
    }
    EXPECT_GE(compared, at_least) << "hwloc saw too little to compare";
    printf("compared with hwloc: %d parents, %d link speeds, %d nodes\n", compared, speeds, nodes);
}

TEST(Hwloc, EightVectorEnginesAreAsHwlocSeesThem)
{
    Capture c("32intel64-2p8co2t+8ve");
    CAPTURE_OR_SKIP(c);
    compare_with_hwloc(c, 25);
}

TEST(Hwloc, ADellR910IsAsHwlocSeesIt)
{
    Capture c("40intel64-2g2n4c+pcilocality");
    CAPTURE_OR_SKIP(c);
    compare_with_hwloc(c, 20);
}

TEST(Hwloc, EditedLocalitiesAreAsHwlocSeesThem)
{
    Capture c("fakepcilocalities");
    CAPTURE_OR_SKIP(c);
    compare_with_hwloc(c, 20);
}
