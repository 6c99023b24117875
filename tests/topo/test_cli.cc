// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the command line of pvn-topo: the output of every command against a golden text, bad input, and exit statuses.
// PVN_UPDATE_GOLDEN=1 rewrites the golden texts; read the difference before you commit it.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

extern "C" {
#include "plugin/base/param.h"
#include "plugin/stats/stats.h"
#include "plugin/base/version.h"
}
#include "tests/support/completed.h"
#include "tests/topo/cli.h"
#include "tests/topo/tree.h"
#include "tests/support/paths.h"

namespace fs = std::filesystem;

namespace
{

// A directory with the machines that the tests use.
class Cli : public ::testing::Test
{
  protected:
    static TempDir *dir;

    static void SetUpTestSuite()
    {
        dir = new TempDir;
        put("guest.tar", vmware_guest({}).tar());
        GuestVariant nodes;
        nodes.two_nodes = true;
        put("vnuma.tar", vmware_guest(nodes).tar());
        GuestVariant mixed;
        mixed.gpu_numa = "0";
        mixed.rdma_bound = false;
        put("mixed.tar", vmware_guest(mixed).tar());
        put("server.tar", server8x8(false, false).tar());
        Tree broken = server8x8(false, false);
        broken.file("/sys/devices/pci0000:10/0000:10:01.0/max_link_width", "8\n");
        put("broken.tar", broken.tar());
        put("rdma_topo.json", "{\"0000:01:00.0\": {}}\n");
        put("some.tar.bz2", "BZh91AY&SY");
        put("hwloc.xml", "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
                         "<topology version=\"2.0\"/>\n");
        put("empty", "");
        for (const auto &e : fs::directory_iterator(PVN_SRCDIR "/tests/topo/data"))
            put(e.path().filename(), read_file(e.path()));
    }
    static void TearDownTestSuite()
    {
        delete dir;
        dir = nullptr;
    }
    static void put(const std::string &name, const std::string &content)
    {
        std::ofstream(dir->path + "/" + name, std::ios::binary) << content;
    }

    static Result run(const std::string &args, const std::string &env = "")
    {
        return run_tool(dir->path, "--no-names " + args, env);
    }

    static void expect_golden(const std::string &name, std::string text)
    {
        std::string path = PVN_SRCDIR "/tests/topo/golden/" + name;
        std::string version = std::string("\"tool_version\": \"") + pvn_version() + "\"";
        size_t at = text.find(version);
        if (at != std::string::npos)
            text.replace(at, version.size(), "\"tool_version\": \"VERSION\"");
        if (std::getenv("PVN_UPDATE_GOLDEN") != nullptr) {
            std::ofstream(path, std::ios::binary) << text;
            return;
        }
        EXPECT_EQ(read_file(path), text) << "differs from " << path;
    }
};

TempDir *Cli::dir;

struct GoldenRow {
    const char *name, *args;
    int status;
};

class Golden : public Cli, public ::testing::WithParamInterface<GoldenRow>
{
};

TEST_P(Golden, PrintsWhatIsKept)
{
    Result r = run(GetParam().args);
    EXPECT_EQ(GetParam().status, r.status) << r.err;
    EXPECT_EQ("", r.err);
    expect_golden(std::string(GetParam().name) + ".txt", r.out);
}

INSTANTIATE_TEST_SUITE_P(
    Commands, Golden,
    ::testing::Values(
        GoldenRow{"help", "--help", 0}, GoldenRow{"help-all", "--help=all", 0},
        GoldenRow{"guest-overview", "--root guest.tar", 0},
        GoldenRow{"two-switches-overview", "--root two-switches.xml", 0},
        GoldenRow{"guest-dump", "--root guest.tar dump", 0},
        GoldenRow{"guest-dump-nccl", "--root guest.tar --nccl dump", 0},
        GoldenRow{"guest-dump-xml", "--root guest.tar --xml dump", 0},
        GoldenRow{"guest-dump-xml-full", "--root guest.tar --xml-full dump", 0},
        GoldenRow{"guest-dump-dot", "--root guest.tar --dot dump", 0},
        GoldenRow{"guest-matrix", "--root guest.tar matrix", 0},
        GoldenRow{"guest-pairs", "--root guest.tar pairs", 0},
        GoldenRow{"guest-pairs-json", "--root guest.tar --json pairs", 0},
        GoldenRow{"guest-why", "--root guest.tar why GPU1 vmw_pvrdma0", 0},
        GoldenRow{"guest-check", "--root guest.tar check", 1},
        GoldenRow{"guest-hints-pairs", "--root guest.tar --hints guest.hints pairs", 0},
        GoldenRow{"guest-merge", "--root guest.tar --hints guest.hints merge", 0},
        GoldenRow{"guest-diff", "diff guest.tar vnuma.tar", 1},
        GoldenRow{"guest-tcp-pairs", "--root guest.tar --nics tcp pairs", 0},
        GoldenRow{"mixed-matrix", "--root mixed.tar matrix", 0},
        GoldenRow{"mixed-pairs", "--root mixed.tar pairs", 0},
        GoldenRow{"guest-hints-dot", "--root guest.tar --hints guest.hints --dot dump", 0},
        GoldenRow{"server-dump", "--root server.tar dump", 0},
        GoldenRow{"server-matrix", "--root server.tar matrix", 0},
        GoldenRow{"server-pairs", "--root server.tar pairs", 0},
        GoldenRow{"server-why", "--root server.tar why GPU0 mlx5_1", 0},
        GoldenRow{"server-why-json", "--root server.tar --json why GPU0 mlx5_0", 0},
        GoldenRow{"server-check", "--root server.tar check", 0},
        GoldenRow{"server-diff", "diff server.tar broken.tar", 1},
        GoldenRow{"file-dump", "--root two-switches.xml dump", 0},
        GoldenRow{"file-dump-json", "--root two-switches.xml --json dump", 0},
        GoldenRow{"file-matrix", "--root two-switches.xml matrix", 0},
        GoldenRow{"file-matrix-json", "--root two-switches.xml --json matrix", 0},
        GoldenRow{"file-pairs", "--root two-switches.xml pairs", 0},
        GoldenRow{"file-why", "--root two-switches.xml why 0000:91:00.0 mlx5_0", 0},
        GoldenRow{"file-diff", "diff two-switches.xml two-switches-broken.xml", 1},
        GoldenRow{"file-diff-same", "diff two-switches.xml two-switches.xml", 0},
        GoldenRow{"file-lint", "lint two-switches.xml", 0},
        GoldenRow{"traps-lint", "lint traps.xml", 1},
        GoldenRow{"traps-lint-json", "--json lint traps.xml", 1}, GoldenRow{"params", "params", 0},
        GoldenRow{"colour", "--root two-switches.xml --color always pairs", 0}),
    [](const auto &row) {
        std::string name = row.param.name;
        for (char &c : name) {
            c = c == '-' ? '_' : c;
        }
        return name;
    });

struct BadRow {
    const char *args;
    int status;
    const char *says;
};

class BadUsage : public Cli, public ::testing::WithParamInterface<BadRow>
{
};

TEST_P(BadUsage, EndsWithAReasonAndAStatus)
{
    Result r = run(GetParam().args);
    EXPECT_EQ(GetParam().status, r.status) << r.out;
    EXPECT_NE(std::string::npos, r.err.find(GetParam().says)) << r.err;
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadUsage,
    ::testing::Values(
        BadRow{"--help=none", 2, "expected --help or --help=all"},
        BadRow{"--json", 2, "--json needs a command"},
        BadRow{"--svg", 2, "--svg has no effect in a call without a command: it is for dump"},
        BadRow{"frobnicate", 2, "'frobnicate' is not a command; the commands are dump, "},
        BadRow{"dmp", 2, "'dmp' is not a command; did you mean dump?"},
        BadRow{"--bogus dump", 2, "--bogus is not an option (see pvn-topo --help)"},
        BadRow{"--clor never dump", 2, "--clor is not an option; did you mean --color?"},
        BadRow{"--xm dump", 2, "--xm is the beginning of --xml, --xml-full"},
        BadRow{"-o", 2, "-o needs a value"}, BadRow{"--root", 2, "--root needs a value"},
        BadRow{"--no-env=1 params", 2, "--no-env takes no value"},
        BadRow{"dump extra", 2, "no arguments"},
        BadRow{"--nics carrier-pigeon dump", 2,
               "--nics carrier-pigeon: expected auto, rdma, tcp or all"},
        BadRow{"--color sometimes dump", 2, "expected auto, always or never"},
        BadRow{"why GPU0", 2, "a GPU and a NIC"},
        BadRow{"--root two-switches.xml why GPU7 mlx5_0", 2, "no GPU \"GPU7\", there are: GPU0, "},
        BadRow{"--root two-switches.xml why GPU0 mlx5_9", 2, "no NIC \"mlx5_9\""},
        BadRow{"--root two-switches.xml check", 2, "holds only the tree"},
        BadRow{"--root two-switches.xml --hints guest.hints pairs", 2, "need a machine"},
        BadRow{"--root /nonexistent dump", 3, "/nonexistent"},
        BadRow{"--root guest.hints dump", 3, "guest.hints"},
        BadRow{"--root guest.tar --topo-file traps-missing.xml pairs", 3, "cannot be read"},
        BadRow{"--root guest.tar --hints nowhere pairs", 3, "nowhere: cannot be read"},
        BadRow{"--root guest.tar --host nowhere merge", 3, "nowhere"},
        BadRow{"--root guest.tar --rails mlx5_0 pairs", 2, "NAME=NUMBER"},
        BadRow{"--root guest.tar merge", 2, "--host"}, BadRow{"lint", 2, "needs a file"},
        BadRow{"lint nowhere.xml", 3, "nowhere.xml: cannot be read"},
        BadRow{"diff", 2, "diff needs"},
        BadRow{"--svg pairs", 2, "--svg has no effect in pairs: it is for dump"},
        BadRow{"--json --dot dump", 2, "give one of"}, BadRow{"diff a b c", 2, "diff needs"},
        BadRow{"diff two-switches.xml nowhere", 3, "nowhere"},
        BadRow{"--root rdma_topo.json dump", 3, "JSON, but not what rdma_topo dump writes"},
        BadRow{"--root some.tar.bz2 dump", 3, "some.tar.bz2: c"},
        BadRow{"--root hwloc.xml dump", 3, "hwloc's XML"},
        BadRow{"--root empty dump", 3, "empty: none of the forms"},
        BadRow{"--root /etc/passwd dump", 3, "/etc/passwd: none of the forms that are read here"},
        BadRow{"--root /bin/sh dump", 3, "/bin/sh: none of the forms that are read here"},
        BadRow{"stat /etc/passwd", 3, "not a statistics file, or not a complete one\n"},
        BadRow{"--timeout 4294967297 params", 2, "expected a number from 1 to 86400"},
        BadRow{"--dot --svg dump", 2, "--dot and --svg exclude each other"},
        BadRow{"--dot --hints guest.hints --root guest.tar merge", 2,
               "--dot has no effect in merge: it is for dump"},
        BadRow{"--nccl pairs", 2, "--nccl has no effect in pairs: it is for dump"},
        BadRow{"--all matrix", 2, "--all has no effect in matrix: it is for dump, check and stat"},
        BadRow{"--keep-addresses dump", 2,
               "--keep-addresses has no effect in dump: it is for gather"},
        BadRow{"--json gather x.tar", 2, "--json is not for gather, which writes a tar"},
        BadRow{"--nics rdma --root two-switches.xml pairs", 2, "--nics and --rails need a machine"},
        BadRow{"-o /nonexistent/x --root guest.tar dump", 3, "cannot be written"}));

TEST_F(Cli, BashCompletesCommandsOptionsAndValues)
{
    using Words = std::set<std::string>;
    EXPECT_EQ((Words{"diff", "dump"}), Completed("pvn-topo d"));
    EXPECT_EQ((Words{"--per-comm", "--prom", "--parallel"}), Completed("pvn-topo stat --p"));
    EXPECT_EQ((Words{"--parallel"}), Completed("pvn-topo dump --p")) << "others are for stat";
    EXPECT_EQ((Words{"always", "auto"}), Completed("pvn-topo --color a"));
    const std::string golden = PVN_SRCDIR "/tests/topo/golden/";
    for (const char *before : {"-o", "--hosts", "lint", "diff x"})
        EXPECT_EQ(Words{golden + "params.txt"},
                  Completed(std::string("pvn-topo ") + before + " " + golden + "para"))
            << before;
    EXPECT_EQ(Documented(run("--help=all").out), Completed("pvn-topo --"));
}

// Compares pvn-topo's output with the examples in pages for users. Each line of an example must be printed, in that
// order; lines are left out only at "...". An example that names no file is of the guest.
class Page : public Cli, public ::testing::WithParamInterface<std::pair<const char *, int>>
{
};

TEST_P(Page, ShowsWhatIsPrinted)
{
    std::istringstream page(read_file(std::string(PVN_SRCDIR "/") + GetParam().first));
    const std::string prompt = "    $ pvn-topo ";
    int examples = 0;
    for (std::string line; std::getline(page, line);) {
        if (line.compare(0, prompt.size(), prompt) != 0)
            continue;
        std::string args = line.substr(prompt.size());
        bool guest = args.find(".xml") == std::string::npos;
        std::string out = run((guest ? "--root guest.tar " : "") + args).out;
        size_t at = 0;
        bool gap = false;
        examples++;
        while (std::getline(page, line) && (line.empty() || line.compare(0, 4, "    ") == 0)) {
            std::string want = (line.empty() ? line : line.substr(4)) + "\n";
            if (line.empty() && out.compare(at, 1, "\n") != 0)
                break; // the end of the example
            size_t found = gap                                       ? out.find(want, at)
                           : out.compare(at, want.size(), want) == 0 ? at
                                                                     : std::string::npos;
            gap = want == "...\n";
            if (gap)
                continue;
            ASSERT_NE(std::string::npos, found) << args << " does not print: " << want << out;
            at = found + want.size();
        }
    }
    EXPECT_EQ(GetParam().second, examples);
}

INSTANTIATE_TEST_SUITE_P(All, Page,
                         ::testing::Values(std::make_pair("plugin/docs/cluster.md", 4),
                                           std::make_pair("plugin/docs/troubleshooting.md", 2),
                                           std::make_pair("plugin/docs/vsphere.md", 5)));

TEST_F(Cli, GatherMakesACaptureThatGivesTheSamePairs)
{
    Result r = run("--root server.tar gather copy.tar");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("copy.tar written")) << r.out;
    EXPECT_EQ(run("--root server.tar pairs").out, run("--root copy.tar pairs").out);
    r = run("gather /nonexistent/x.tar");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("/nonexistent/x.tar: cannot be written")) << r.err;
}

TEST_F(Cli, GatherKeepsTheseFiles)
{
    Result r = run("--root guest.tar gather guest-copy.tar");
    EXPECT_EQ(0, r.status) << r.err;
    const std::string list = dir->path + "/guest-copy.list";
    const std::string command = "tar -tf " + dir->path + "/guest-copy.tar >" + list;
    if (std::system("command -v tar >/dev/null") != 0)
        GTEST_SKIP() << "no tar command";
    ASSERT_EQ(0, std::system(command.c_str()));
    expect_golden("guest-gather.txt", r.out + read_file(list));
}

TEST_F(Cli, ParamsAreThePluginsTable)
{
    Result r = run("params", "NCCL_PVRDMA_STRICT=1");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("NCCL_PVRDMA_STRICT")) << r.out;
    r = run("params", "NCCL_PVRDMA_STRICT=perhaps");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.err.find("perhaps")) << r.err;
    const char *env = "NCCL_PVRDMA_STRICT=perhaps NCCL_IB_FIFO_TC=46";
    r = run("--no-env params", env);
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(std::string::npos, r.out.find("46")) << r.out;
    EXPECT_NE(std::string::npos,
              run("params", env).out.find("NCCL_IB_FIFO_TC=46    [no effect]\n"));
}

// --nics is valid if one of the two machines can use it, even if the other one is a file.
TEST_F(Cli, DiffTakesNicsForTheMachineOfTheTwo)
{
    Result r = run("--nics all diff guest.tar two-switches.xml");
    EXPECT_EQ(1, r.status) << r.err;
    r = run("--nics all --root two-switches.xml dump");
    EXPECT_EQ(2, r.status);
}

// A wrong command line is refused before any file is opened for writing.
TEST_F(Cli, WatchWithoutEffectLeavesTheFile)
{
    put("kept", "as it was");
    EXPECT_EQ(2, run("--watch -o kept dump").status);
    EXPECT_EQ(2, run("--watch -o kept frobnicate").status);
    EXPECT_EQ("as it was", read_file(dir->path + "/kept"));
}

// NCCL_NET_PLUGIN is a list, in which "none" has a meaning of its own.
TEST_F(Cli, CheckLooksAtEachPluginThatNcclLoads)
{
    const std::string file = PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so";
    std::string text =
        squeeze(run("--all check --interval 0", "NCCL_NET_PLUGIN=" + file + ",,not-there").out);
    EXPECT_NE(std::string::npos, text.find(file + ": it can be loaded and exports v4")) << text;
    EXPECT_NE(std::string::npos, text.find("libnccl-net-not-there.so: cannot be loaded")) << text;
    const std::string deep = dir->path + "/" + std::string(150, 'd') + "/libnccl-net-x.so";
    std::filesystem::create_directories(std::filesystem::path(deep).parent_path());
    std::filesystem::create_symlink(file, deep);
    text = squeeze(run("--all check --interval 0", "NCCL_NET_PLUGIN=" + deep).out);
    EXPECT_NE(std::string::npos, text.find(deep + ": it can be loaded and exports v4")) << text;
    for (const char *none : {"none", "NONE", ",", ""}) {
        text = squeeze(run("check --interval 0", std::string("NCCL_NET_PLUGIN=") + none).out);
        EXPECT_NE(std::string::npos, text.find("it names no plugin, so NCCL loads none")) << text;
    }
}

// pip and archives install the plugin outside the loader's path.
TEST_F(Cli, CheckSaysWhereAPluginLiesThatTheLoaderDoesNotFind)
{
    const std::string name = "libnccl-net-pvrdma.so", from = PVN_BUILDDIR "/.libs/" + name;
    const struct {
        std::string env, lib;
    } cases[] = {
        {"HOME=$PWD/home", "/home/.local/lib/python3.11/site-packages/nccl_net_pvrdma/lib"},
        {"VIRTUAL_ENV=$PWD/venv", "/venv/lib/python3.9/site-packages/nccl_net_pvrdma/lib"},
        {"CONDA_PREFIX=$PWD/conda", "/conda/lib/python3.12/site-packages/nccl_net_pvrdma/lib"},
        {"sh -c 'shift; exec archive/bin/pvn-topo \"$@\"' sh", "/archive/lib"},
        {"VIRTUAL_ENV=$PWD/a,b", "/a,b/lib/python3.9/site-packages/nccl_net_pvrdma/lib"},
    };
    std::filesystem::create_directories(dir->path + "/archive/bin");
    std::filesystem::copy_file(PVN_BUILDDIR "/topo/pvn-topo", dir->path + "/archive/bin/pvn-topo");
    for (const auto &c : cases) {
        std::string lib = std::filesystem::canonical(dir->path).string() + c.lib;
        std::string text = squeeze(run("check --interval 0", c.env).out);
        if (text.find("plugin " + name + ": cannot be loaded: " + name) == std::string::npos)
            GTEST_SKIP() << "the plugin is installed here: " << text;
        EXPECT_NE(std::string::npos, text.find("install it where the loader looks")) << text;

        std::filesystem::create_directories(lib);
        std::filesystem::copy_file(from, lib + "/" + name);
        text = squeeze(run("check --interval 0", c.env).out);
        EXPECT_NE(std::string::npos,
                  text.find("the loader does not look in " + lib + ", where it lies"))
            << text;
        EXPECT_EQ(lib.find(',') == std::string::npos,
                  text.find("NCCL_NET_PLUGIN=" + lib + "/" + name +
                            " (NCCL 2.21.5 and later), or") != std::string::npos)
            << text;
        EXPECT_NE(std::string::npos, text.find("LD_LIBRARY_PATH=" + lib + ":$LD_LIBRARY_PATH"))
            << text;
        std::filesystem::remove_all(lib);
    }
}

// NCCL uses the network with that name, compared without case, or fails.
TEST_F(Cli, CheckLooksAtTheNameOfTheNetwork)
{
    const std::string plugin =
        "NCCL_NET_PLUGIN=" PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so NCCL_NET=";
    auto check = [&](const std::string &env) {
        Result r = run("--all check --interval 0", env);
        r.out = squeeze(r.out);
        return r;
    };
    auto has = [](const Result &r, const std::string &part) {
        return r.out.find(part) != std::string::npos;
    };
    for (const char *name : {"pvrdma", "PVRDMA"}) {
        Result r = check(plugin + name);
        EXPECT_TRUE(has(r, "OK plugin")) << r.out;
        EXPECT_FALSE(has(r, "NCCL_NET")) << r.out;
    }
    for (const char *name : {"pvdrma", "''"}) {
        Result r = check(plugin + name);
        EXPECT_EQ(1, r.status) << name;
        EXPECT_FALSE(has(r, "OK plugin")) << r.out;
        EXPECT_TRUE(has(r, "WARN plugin")) << r.out;
        EXPECT_TRUE(has(r, "FAIL network NCCL_NET:")) << r.out;
        EXPECT_TRUE(has(r, "(plugins: pvrdma; NCCL's own: IB, Socket), so NCCL ends")) << r.out;
    }
    for (const char *name : {"Socket", "socket", "IB"}) {
        Result r = check(plugin + name);
        EXPECT_FALSE(has(r, "OK plugin")) << r.out;
        EXPECT_TRUE(has(r, std::string("WARN network NCCL_NET: ") + name + " is NCCL's own"))
            << r.out;
    }
    EXPECT_TRUE(has(check("NCCL_NET_PLUGIN=none NCCL_NET=pvrdma"), "FAIL network NCCL_NET:"));
    EXPECT_TRUE(has(check("NCCL_NET_PLUGIN=not-there NCCL_NET=pvrdma"), "none can be loaded"));
    EXPECT_TRUE(has(check("NCCL_NET_PLUGIN=not-there NCCL_NET=Socket"), "WARN network"));
}

TEST_F(Cli, VersionIsTheBuilds)
{
    EXPECT_EQ(std::string("pvn-topo ") + pvn_version() + "\n", run("--version").out);
}

TEST_F(Cli, AnXmlErrorHasItsPlace)
{
    put("bad.xml", "<system version=\"1\">\n  <cpu/>\n</system>\n");
    Result r = run("--root bad.xml dump");
    EXPECT_EQ(3, r.status);
    EXPECT_EQ("pvn-topo: bad.xml:2:3: <cpu> has no numaid: NCCL stops at such an element\n", r.err);
}

TEST_F(Cli, NcclsVariablesOfTheShellCount)
{
    Result r = run("--root two-switches.xml why GPU1 mlx5_0", "NCCL_NET_GDR_LEVEL=SYS");
    EXPECT_NE(std::string::npos, r.out.find("5 yes     they are near enough: SYS")) << r.out;
    r = run("--root two-switches.xml --no-env why GPU1 mlx5_0", "NCCL_NET_GDR_LEVEL=SYS");
    EXPECT_NE(std::string::npos, r.out.find("5 NO      they are near enough: SYS")) << r.out;
    r = run("--root two-switches.xml pairs", "NCCL_NET_GDR_LEVEL=phb");
    EXPECT_NE(std::string::npos, r.out.find("NCCL_NET_GDR_LEVEL=phb is not understood")) << r.out;
}

TEST_F(Cli, ATopologyFileChangesTheGuest)
{
    ASSERT_EQ(0, run("--root guest.tar --hints guest.hints -o made.xml merge").status);
    Result before = run("--root guest.tar --json matrix"),
           after = run("--root guest.tar --topo-file made.xml --json matrix");
    EXPECT_EQ(0, after.status) << after.err;
    EXPECT_EQ(std::string::npos, before.out.find("\"nccl\": \"PIX\""));
    EXPECT_NE(std::string::npos, after.out.find("\"nccl\": \"PIX\"")) << after.out;
    EXPECT_EQ(0, run("lint made.xml").status);
}

// NCCL detects the machine if it cannot open the file, and so does pvn-topo, with a note.
TEST_F(Cli, AVariableWhoseFileIsGoneIsNoted)
{
    const std::string env = "NCCL_TOPO_FILE=/nonexistent/x.xml";
    Result r = run("pairs", env);
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos,
              squeeze(r.out).find("NCCL_TOPO_FILE=/nonexistent/x.xml: No such file or directory. "
                                  "NCCL goes on without the file."))
        << r.out;
    r = run("check --interval 0", env);
    EXPECT_NE(std::string::npos, squeeze(r.out).find("WARN topo-file NCCL_TOPO_FILE:")) << r.out;
    put("bad.xml", "<system");
    r = run("pairs", "NCCL_TOPO_FILE=bad.xml");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("bad.xml:1")) << r.err;
}

TEST_F(Cli, JsonHasTheFactsOfRdmaDevicesAndConfigSpace)
{
    Result r = run("--root guest.tar --json dump");
    for (const char *fact :
         {"\"gid\": \"0000:0000:0000:0000:0000:ffff:0a00:0001\"", "\"type\": \"RoCE v2\"",
          "\"gid_pick\": 1", "\"pvrdma\": true", "\"interface\": \"ens192\"", "\"mtu\": 9000",
          "\"acs\": \"unknown\"", "\"virtual_functions\": null"})
        EXPECT_NE(std::string::npos, r.out.find(fact)) << fact;
}

TEST_F(Cli, OutputFilesAndStandardInputWork)
{
    Result r = run("-o out.txt --root two-switches.xml pairs");
    EXPECT_EQ("", r.out);
    EXPECT_EQ(run("--root two-switches.xml pairs").out, read_file(dir->path + "/out.txt"));
    EXPECT_EQ(0, run("lint - <two-switches.xml").status);
}

// A description may be rewritten in place, and a failed command keeps the old file.
TEST_F(Cli, TheOutputFileMayBeAnInputAndIsKeptWhenNothingComes)
{
    const std::string xml = run("--root two-switches.xml --xml dump").out;
    put("same.xml", read_file(dir->path + "/two-switches.xml"));
    Result r = run("--root same.xml -o same.xml --xml dump");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(xml, read_file(dir->path + "/same.xml"));
    EXPECT_EQ(2, run("--root same.xml -o same.xml frobnicate").status);
    EXPECT_EQ(3, run("--root nowhere -o same.xml dump").status);
    EXPECT_EQ(xml, read_file(dir->path + "/same.xml"));
    EXPECT_EQ(3, run("--root nowhere -o new.xml dump").status);
    EXPECT_FALSE(fs::exists(dir->path + "/new.xml"));
    // NCCL_TOPO_FILE names the file that this command makes. Its absence is no error.
    r = run("--xml -o new.xml dump", "NCCL_TOPO_FILE=new.xml");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(run("--xml dump").out, read_file(dir->path + "/new.xml"));

    put("again.tar", read_file(dir->path + "/guest.tar"));
    r = run("--root again.tar gather again.tar");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(run("--root guest.tar pairs").out, run("--root again.tar pairs").out);
    EXPECT_EQ(3, run("--root nowhere gather again.tar").status);
    EXPECT_TRUE(fs::exists(dir->path + "/again.tar"));
    EXPECT_EQ(2, run("-o again.tar gather other.tar").status);
}

// Without arguments pvn-topo shows the machine and the commands to use next.
TEST_F(Cli, AloneItSaysWhatItSeesAndWhatToDoNext)
{
    Result r = run("");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_EQ(0u, r.out.find("this machine")) << r.out;
    for (const char *next : {"  pvn-topo check ", "  pvn-topo stat ", "pvn-topo --help"})
        EXPECT_NE(std::string::npos, r.out.find(next)) << next << " is not in\n" << r.out;
    std::istringstream lines(run("--help").out);
    int n = 0;
    for (std::string line; std::getline(lines, line); n++)
        EXPECT_GE(80u, line.size()) << line;
    EXPECT_GE(24, n);
}

// Root may remove files in /dev. An output that existed before must stay.
TEST_F(Cli, WhatCannotBeWrittenIsNotRemoved)
{
    fs::create_symlink("/dev/full", dir->path + "/full");
    for (const char *args : {"--root guest.tar gather full", "--root guest.tar -o full pairs"}) {
        Result r = run(args);
        EXPECT_EQ(3, r.status) << args;
        EXPECT_EQ("pvn-topo: full: cannot be written: No space left on device\n", r.err);
        EXPECT_TRUE(fs::is_symlink(dir->path + "/full")) << args;
    }
    for (const char *args : {"--help", "--version", "params"})
        EXPECT_EQ(3, run(std::string(args) + " >/dev/full; exit; :").status) << args;
    // --watch ends with the first output that cannot be written.
    Result r = run("--watch=0.1 -o full stat", "NCCL_PVRDMA_STATS_DIR=.");
    EXPECT_EQ(3, r.status);
    EXPECT_EQ("pvn-topo: full: cannot be written: No space left on device\n", r.err);
    EXPECT_EQ(3, run("--watch=0.1 stat >/dev/full; exit; :").status);
}

TEST_F(Cli, SvgNeedsDotAndSaysSo)
{
    Result r = run("--root two-switches.xml --svg dump", "PATH=/nonexistent");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("install graphviz")) << r.err;
    if (std::system("command -v dot >/dev/null 2>&1") != 0)
        GTEST_SKIP() << "dot (graphviz) is not installed";
    r = run("--root two-switches.xml --svg dump");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("<svg"));
    EXPECT_NE(std::string::npos, r.out.find("mlx5_0"));
}

// Checks that every name in a document is in the schema, and that the document has every name that the schema
// requires. It knows the part of the schema language that our schema uses (type, required, properties, items, enum).
void conforms(json_t *value, json_t *schema, json_t *root, const std::string &where)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (ref != nullptr) {
        std::string name = std::string(ref).substr(std::string(ref).rfind('/') + 1);
        schema = json_object_get(json_object_get(root, "$defs"), name.c_str());
        ASSERT_NE(nullptr, schema) << ref;
    }
    auto type_of = [](json_t *v) -> std::string {
        return json_is_object(v)    ? "object"
               : json_is_array(v)   ? "array"
               : json_is_string(v)  ? "string"
               : json_is_integer(v) ? "integer"
               : json_is_real(v)    ? "number"
               : json_is_boolean(v) ? "boolean"
                                    : "null";
    };
    json_t *type = json_object_get(schema, "type"), *option;
    bool fits = type == nullptr;
    size_t i;
    if (json_is_string(type))
        fits = type_of(value) == json_string_value(type);
    json_array_foreach(type, i, option) fits |= type_of(value) == json_string_value(option);
    EXPECT_TRUE(fits) << where << " is " << type_of(value);
    json_t *choices = json_object_get(schema, "enum"), *choice;
    bool known = choices == nullptr;
    json_array_foreach(choices, i, choice) known |= json_equal(choice, value) != 0;
    EXPECT_TRUE(known) << where << " is "
                       << (json_is_string(value) ? json_string_value(value) : "?");
    json_t *required;
    json_array_foreach(json_object_get(schema, "required"), i, required)
    {
        if (json_is_object(value)) {
            EXPECT_NE(nullptr, json_object_get(value, json_string_value(required)))
                << where << "." << json_string_value(required);
        }
    }
    const char *key;
    json_t *inner;
    if (json_is_object(value)) {
        json_object_foreach(value, key, inner)
        {
            json_t *sub = json_object_get(json_object_get(schema, "properties"), key);
            EXPECT_NE(nullptr, sub) << where << "." << key << " is not in the schema";
            if (sub != nullptr)
                conforms(inner, sub, root, where + "." + key);
        }
    }
    json_array_foreach(value, i, inner)
        conforms(inner, json_object_get(schema, "items"), root, where + "[]");
}

TEST_F(Cli, JsonConformsToTheSchema)
{
    json_error_t error;
    json_t *schema = json_load_file(PVN_SRCDIR "/topo/pvn-topo.schema.json", 0, &error);
    ASSERT_NE(nullptr, schema) << error.text << " line " << error.line;
    for (const char *args :
         {"--root guest.tar --json dump", "--root server.tar --json dump",
          "--root two-switches.xml --json dump", "--root guest.tar --json matrix",
          "--root guest.tar --json pairs", "--root guest.tar --json why GPU0 vmw_pvrdma0",
          "--root guest.tar --json check", "--json lint traps.xml", "--json params",
          "--json diff two-switches.xml two-switches-broken.xml"}) {
        Result r = run(args);
        json_t *doc = json_loads(r.out.c_str(), 0, &error);
        ASSERT_NE(nullptr, doc) << args << ": " << error.text;
        conforms(doc, schema, schema, args);
        json_decref(doc);
    }
    // The last document is of a process of the plugin: this one.
    pvn_params params = *pvn_params_get();
    snprintf(params.stats_dir, sizeof(params.stats_dir), "%s/stats", dir->path.c_str());
    pvn_params_override(&params);
    pvn_stats_open(12);
    pvn_stat *s = pvn_stat_new(PVN_STAT_SETUP, true, "mlx5_0");
    ASSERT_NE(nullptr, s);
    for (unsigned known : {0, PVN_STAT_KNOWS_DOORBELLS | PVN_STAT_KNOWS_RETRANSMITS}) {
        pvn_stat_counts n = {};
        n.known = known;
        pvn_stat_put(s, &n, "");
        Result r = run(std::string("--json stat ") + pvn_stats_path());
        EXPECT_EQ(0, r.status) << r.err;
        json_t *doc = json_loads(r.out.c_str(), 0, &error);
        ASSERT_NE(nullptr, doc) << error.text;
        EXPECT_EQ(1u, json_array_size(json_object_get(doc, "processes")));
        conforms(doc, schema, schema, "stat");
        json_decref(doc);
    }
    pvn_stat_end(s);
    pvn_stats_close();
    pvn_params_override(nullptr);
    json_decref(schema);
}

// The connections name adapters, but the machine has no /sys.
TEST_F(Cli, StatSaysThatNoAdapterCanBeRead)
{
    Tree bare;
    bare.cpus("GenuineIntel", 6, 106, false);
    bare.write_dir(dir->path + "/bare");
    pvn_params params = *pvn_params_get();
    snprintf(params.stats_dir, sizeof(params.stats_dir), "%s/stats-bare", dir->path.c_str());
    pvn_params_override(&params);
    pvn_stats_open(12);
    pvn_stat *s = pvn_stat_new(PVN_STAT_SETUP, true, "mlx5_0");
    ASSERT_NE(nullptr, s);
    Result r = run(std::string("--root bare stat ") + pvn_stats_path());
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("/sys/class/infiniband: cannot be listed")) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("counters are left out for that")) << r.err;
    pvn_stat_end(s);
    pvn_stats_close();
    pvn_params_override(nullptr);
}

} // namespace
