// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the reader and writer of NCCL's topology files, errors with their line, and the linter's rules one by one.
#include "tests/topo/nccl_file.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/support/paths.h"

namespace
{

// ---- the reader ----

struct BadRow {
    const char *name, *xml;
    int code, line;
    const char *says;
};

class Reader : public ::testing::TestWithParam<BadRow>
{
};

TEST_P(Reader, SaysWhereAndWhatIsWrong)
{
    const BadRow &row = GetParam();
    pvn_topo_ndoc *doc = nullptr;
    pvn_topo_xml_error err;
    EXPECT_EQ(row.code, pvn_topo_nccl_xml_parse(row.xml, strlen(row.xml), &doc, &err));
    EXPECT_EQ(nullptr, doc);
    EXPECT_EQ(row.line, err.line) << err.text;
    EXPECT_NE(nullptr, strstr(err.text, row.says)) << err.text;
}

INSTANTIATE_TEST_SUITE_P(
    Bad, Reader,
    ::testing::Values(
        BadRow{"empty", "", -EINVAL, 1, "the file is empty"},
        BadRow{"no root", "hello", -EINVAL, 1, "not well-formed"},
        BadRow{"graphs", "<graphs version=\"1\"/>", -EINVAL, 1, "NCCL_GRAPH_FILE"},
        BadRow{"hwloc", "<topology/>", -EINVAL, 1, "lstopo"},
        BadRow{"other root", "<html/>", -EINVAL, 1, "<html>"},
        BadRow{"no version", "<system/>", -EINVAL, 1, "no version"},
        BadRow{"version 3", "\n<system version=\"3\"/>", -EINVAL, 2, "version=\"3\""},
        BadRow{"no numaid", "<system version=\"1\">\n<cpu/></system>", -EINVAL, 2, "numaid"},
        BadRow{"no busid", "<system version=\"1\">\n<cpu numaid=\"0\">\n\n<pci/></cpu></system>",
               -EINVAL, 4, "busid"},
        BadRow{"no target",
               "<system version=\"1\"><cpu numaid=\"0\"><pci "
               "busid=\"x\"><gpu>\n<nvlink/></gpu></pci></cpu></system>",
               -EINVAL, 2, "target"},
        BadRow{"net without name",
               "<system version=\"1\"><cpu numaid=\"0\"><nic>\n<net/></nic></cpu></system>",
               -EINVAL, 2, "name"},
        BadRow{"mismatch", "<system version=\"1\">\n</cpu>", -EINVAL, 2, "mismatched tag"},
        BadRow{"cut off", "<system version=\"1\">\n<cpu numaid=\"0\">\n", -EINVAL, 3,
               "no element found"},
        BadRow{"text", "<system version=\"1\">\n  hello\n</system>", -EINVAL, 2, "\"hello\""},
        BadRow{"twice", "<system version=\"1\">\n<cpu numaid=\"0\" numaid=\"1\"/></system>",
               -EINVAL, 2, "duplicate attribute"},
        BadRow{"doctype", "<!DOCTYPE x [<!ENTITY a \"b\">]>\n<system version=\"1\"/>", -EINVAL, 1,
               "DOCTYPE"}),
    [](const auto &row) {
        std::string name = row.param.name;
        for (char &c : name) {
            c = c == ' ' ? '_' : c;
        }
        return name;
    });

TEST(ReaderLimits, DepthEndsInAnError)
{
    std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
    for (int i = 0; i < 200; i++)
        xml += "<pci busid=\"" + std::to_string(i) + "\">";
    pvn_topo_ndoc *doc = nullptr;
    pvn_topo_xml_error err;
    EXPECT_EQ(-EFBIG, pvn_topo_nccl_xml_parse(xml.data(), xml.size(), &doc, &err));
    EXPECT_NE(nullptr, strstr(err.text, "64 levels")) << err.text;
}

TEST(ReaderLimits, NumberOfElementsEndsInAnError)
{
    std::string xml = "<system version=\"1\">";
    for (int i = 0; i < PVN_TOPO_XML_MAX_NODES + 10; i++)
        xml += "<cpu numaid=\"0\"/>";
    pvn_topo_ndoc *doc = nullptr;
    pvn_topo_xml_error err;
    EXPECT_EQ(-EFBIG, pvn_topo_nccl_xml_parse(xml.data(), xml.size(), &doc, &err));
    EXPECT_NE(nullptr, strstr(err.text, "elements")) << err.text;
}

TEST(ReaderLimits, SizeEndsInAnError)
{
    std::string xml(PVN_TOPO_XML_MAX_BYTES + 1, ' ');
    pvn_topo_ndoc *doc = nullptr;
    pvn_topo_xml_error err;
    EXPECT_EQ(-EFBIG, pvn_topo_nccl_xml_parse(xml.data(), xml.size(), &doc, &err));
    EXPECT_NE(nullptr, strstr(err.text, "4194305 bytes")) << err.text;
}

TEST(ReaderTolerance, SkipsWhatNcclSkips)
{
    std::string xml =
        "<!-- c -->\n<system version=\"1\"><host/><cpu numaid=\"0\"><gpu dev=\"0\"><x/></gpu>"
        "<pci busid=\"0000:01:00.0\" class=\"0x030200\"/></cpu></system>";
    NcclFile m(xml);
    EXPECT_EQ(2, m.doc->n_ignored);
    EXPECT_STREQ("host", m.doc->ignored[0].name);
    EXPECT_STREQ("cpu", m.doc->ignored[1].parent);
    EXPECT_EQ(1, m.tree->n_gpus);
}

// ---- the writer ----

TEST(Writer, RefusesWhatNcclCouldNotRead)
{
    for (const char *value : {"a\"b", "a\nb", "\t"}) {
        pvn_topo_ndoc *doc = pvn_topo_ndoc_new();
        pvn_topo_ndoc_node *system = pvn_topo_ndoc_add(doc, nullptr, "system"),
                           *cpu = pvn_topo_ndoc_add(doc, system, "cpu");
        const pvn_topo_ndoc_node *bad = nullptr;
        char *text = nullptr;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        pvn_topo_ndoc_set(system, "version", "1");
        pvn_topo_ndoc_set(cpu, "numaid", value);
        EXPECT_EQ(-EINVAL, pvn_topo_ndoc_write(doc, out, &bad));
        EXPECT_EQ(cpu, bad);
        fclose(out);
        free(text);
        pvn_topo_ndoc_free(doc);
    }
}

// ---- the linter ----

std::vector<pvn_topo_lint_finding> lint(const std::string &xml)
{
    pvn_topo_lint l;
    EXPECT_EQ(0, pvn_topo_nccl_lint(xml.data(), xml.size(), &l));
    std::vector<pvn_topo_lint_finding> found(l.findings, l.findings + l.n);
    pvn_topo_lint_free(&l);
    return found;
}

struct LintRow {
    const char *rule;
    pvn_topo_lint_level level;
    int line;
    std::string xml;
    const char *says;
};

std::string body(const std::string &inner)
{
    return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + inner + "\n</cpu>\n</system>\n";
}

const char good_pci[] = "<pci busid=\"0000:01:00.0\" class=\"0x060400\"/>";

std::string many(int n, const char *element)
{
    std::string text;
    for (int i = 0; i < n; i++) {
        char line[160];
        snprintf(line, sizeof line, element, i >> 8, i & 255);
        text += line;
    }
    return text;
}

class Lint : public ::testing::TestWithParam<LintRow>
{
};

TEST_P(Lint, FindsTheTrap)
{
    const LintRow &row = GetParam();
    bool found = false;
    std::string all;
    for (const pvn_topo_lint_finding &f : lint(row.xml)) {
        all += std::string(f.rule) + ":" + std::to_string(f.line) + " " + f.what + "\n";
        EXPECT_STRNE("", f.remedy);
        if (strcmp(f.rule, row.rule) == 0 && f.line == row.line && f.level == row.level)
            found |= strstr(f.what, row.says) != nullptr;
    }
    EXPECT_TRUE(found) << row.rule << " in line " << row.line << " is missing among\n" << all;
}

INSTANTIATE_TEST_SUITE_P(
    Traps, Lint,
    ::testing::Values(
        // valid XML that NCCL's own scanner refuses
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 1, "<?xml version=\"1.0\"?>\n" + body(good_pci),
                "declaration"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 3, body("\t" + std::string(good_pci)), "tab"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 4,
                body("<pci busid=\"0000:01:00.0\"\n class=\"0x060400\"/>"), "line break"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 3, body("<pci busid = \"0000:01:00.0\"/>"),
                "not quoted"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 1, "<!--x=1 -->\n" + body(good_pci),
                "first word of a comment"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 1, "<!--======-->\n" + body(good_pci),
                "first word of a comment"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 1, "\xef\xbb\xbf" + body(good_pci),
                "byte order mark"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 5,
                "<system version=\"1\">\n<cpu numaid=\"0\">\n\n</cpu>\n</system >\n", "end tag"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 3,
                body("<pci busid=\"" + std::string(254, '0') + "\"/>"), "253"},
        LintRow{"scanner", PVN_TOPO_LINT_ERROR, 3, "<system version=\"1\">\n<cpu numaid=\"0\">\n",
                "inside an element"},
        // text that cannot be parsed
        LintRow{"parse", PVN_TOPO_LINT_ERROR, 2, "<system version=\"1\">\n</cpu>", "mismatched"},
        LintRow{"graph-file", PVN_TOPO_LINT_ERROR, 1, "<graphs version=\"1\"/>", "NCCL_GRAPH_FILE"},
        LintRow{"version", PVN_TOPO_LINT_ERROR, 1,
                "<system version=\"2\">\n<cpu numaid=\"0\">\n<pci busid=\"0000:01:00.0\" "
                "class=\"0x030200\" vendor=\"0x10DE\"/>\n</cpu>\n</system>\n",
                "0000:01:00.0 in line 3 is NVIDIA's: NCCL refuses"},
        LintRow{
            "version", PVN_TOPO_LINT_ERROR, 1,
            body("<pci busid=\"0000:01:00.0\" class=\"0x030200\">\n<gpu gcn=\"gfx942\"/></pci>"),
            "<gpu> in line 4 has a gcn, so it is AMD's: RCCL refuses"},
        // sizes
        LintRow{"nodes", PVN_TOPO_LINT_ERROR, 1,
                body(many(254, "<pci busid=\"00%02x:%02x:00.0\"/>\n")), "256 elements"},
        LintRow{"nodes", PVN_TOPO_LINT_WARN, 1,
                body(many(230, "<pci busid=\"00%02x:%02x:00.0\"/>\n")), "232 elements"},
        LintRow{"children", PVN_TOPO_LINT_ERROR, 2,
                body(many(641, "<pci busid=\"00%02x:%02x:00.0\"/>\n")), "641"},
        LintRow{"children", PVN_TOPO_LINT_NOTE, 2,
                body(many(33, "<pci busid=\"00%02x:%02x:00.0\"/>\n")), "33"},
        LintRow{"attributes", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" a=\"1\" b=\"1\" c=\"1\" d=\"1\" e=\"1\" f=\"1\" "
                     "g=\"1\" h=\"1\" "
                     "i=\"1\" j=\"1\" k=\"1\" l=\"1\" m=\"1\" n=\"1\" o=\"1\" p=\"1\"/>"),
                "17 attributes"},
        LintRow{"value-length", PVN_TOPO_LINT_ERROR, 3,
                body("<pci busid=\"" + std::string(254, '0') + "\"/>"), "254"},
        LintRow{"entity", PVN_TOPO_LINT_WARN, 3, body("<nic><net name=\"a&amp;b\"/></nic>"),
                "entity"},
        // bus ids
        LintRow{"bus-id-form", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"10000:01:00.0\" class=\"0x060400\"/>"), "10000:01:00.0"},
        LintRow{"bus-id-form", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"01:00.0\" class=\"0x060400\"/>"), "01:00.0"},
        LintRow{"bus-id-case", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:AB:00.0\" class=\"0x060400\"/>"), "AB"},
        LintRow{"bus-id-repeated", PVN_TOPO_LINT_WARN, 4,
                body(std::string(good_pci) + "\n" + good_pci), "line 3"},
        // links
        LintRow{"slow-link", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"ffff:01:00.0\" class=\"0x060400\" link_speed=\"2.5 GT/s PCIe\" "
                     "link_width=\"1\"/>"),
                "0.19 GB/s"},
        LintRow{"link-speed", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s\"/>"),
                "8 GT/s"},
        LintRow{"link-speed", PVN_TOPO_LINT_NOTE, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"\"/>"), "8 GT/s"},
        LintRow{"link-width", PVN_TOPO_LINT_NOTE, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_width=\"0\"/>"), "16"},
        LintRow{"invented-link", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"ffff:01:00.0\" class=\"0x060400\"/>"),
                "no link_speed and no link_width"},
        LintRow{
            "class-missing", PVN_TOPO_LINT_ERROR, 3,
            body("<pci busid=\"ffff:01:00.0\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"/>"),
            "no class"},
        // places
        LintRow{"nic-in-bridge", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x060400\"><nic><net "
                     "name=\"a\"/></nic></pci>"),
                "bridge"},
        LintRow{"nic-in-bridge", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\"><nic><net name=\"a\"/></nic><pci "
                     "busid=\"0000:02:00.0\"/></pci>"),
                "ignores everything else"},
        LintRow{"gpu-beside-nic", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x030200\"><nic><net "
                     "name=\"a\"/></nic><gpu/></pci>"),
                "the GPU is lost"},
        LintRow{"gpu-class", PVN_TOPO_LINT_ERROR, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x120000\"><gpu/></pci>"), "0x120000"},
        LintRow{"leaf-with-children", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x030200\"><pci "
                     "busid=\"0000:02:00.0\"/></pci>"),
                "ignores what is below"},
        LintRow{"ignored-element", PVN_TOPO_LINT_WARN, 3, body("<gpu dev=\"0\"/>"),
                "<gpu> inside <cpu>"},
        LintRow{"gpu-net-tags", PVN_TOPO_LINT_NOTE, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\"/></pci>"),
                "without rank"},
        // cpus
        LintRow{"numaid-repeated", PVN_TOPO_LINT_WARN, 3,
                "<system version=\"1\">\n<cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/>\n</system>",
                "line 2"},
        LintRow{"numaid-form", PVN_TOPO_LINT_WARN, 2,
                "<system version=\"1\">\n<cpu numaid=\"node0\"/>\n</system>", "node0"},
        LintRow{"numaid-unknown", PVN_TOPO_LINT_NOTE, 2,
                "<system version=\"1\">\n<cpu numaid=\"-1\"/>\n</system>", "-1"},
        LintRow{"cpu-vendor", PVN_TOPO_LINT_WARN, 2,
                "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" "
                "vendor=\"Intel\"/>\n</system>",
                "Intel"},
        // nets
        LintRow{"absurd-speed", PVN_TOPO_LINT_WARN, 3,
                body("<nic><net name=\"a\" speed=\"200000000\"/></nic>"), "25000 GB/s"},
        LintRow{"no-speed", PVN_TOPO_LINT_NOTE, 3,
                body("<nic><net name=\"a\" speed=\"-1\"/></nic>"), "10 Gb/s"},
        LintRow{"net-repeated", PVN_TOPO_LINT_WARN, 4,
                body("<nic><net name=\"a\"/></nic>\n<nic><net name=\"a\"/></nic>"), "line 3"},
        LintRow{"net-on-cpu", PVN_TOPO_LINT_NOTE, 3, body("<nic><net name=\"a\"/></nic>"),
                "5000 GB/s"},
        LintRow{"nvlink-target", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu><nvlink "
                     "target=\"0000:02:00.0\" "
                     "tclass=\"0x030200\" count=\"1\"/></gpu></pci>"),
                "0000:02:00.0"}),
    [](const auto &row) {
        std::string name = row.param.rule;
        for (char &c : name) {
            c = c == '-' ? '_' : c;
        }
        return name + "_" + std::to_string(row.index);
    });

class LintNumbers : public ::testing::TestWithParam<LintRow>
{
};

TEST_P(LintNumbers, AWrongNumberIsFoundInItsLine)
{
    const LintRow &row = GetParam();
    bool found = false;
    std::string all;
    for (const pvn_topo_lint_finding &f : lint(row.xml)) {
        all += std::string(f.rule) + ":" + std::to_string(f.line) + " " + f.what + "\n";
        if (strcmp(f.rule, row.rule) == 0 && f.line == row.line && f.level == row.level)
            found |= strstr(f.what, row.says) != nullptr;
        EXPECT_EQ(nullptr, strstr(f.what, "at -")) << f.what;
    }
    EXPECT_TRUE(found) << row.rule << " in line " << row.line << " is missing among\n" << all;
}

std::string gpu(const char *bus, const std::string &attrs, const char *inner = "")
{
    return std::string("<pci busid=\"0000:") + bus + ":00.0\" class=\"0x030200\"><gpu " + attrs +
           ">" + inner + "</gpu></pci>\n";
}

std::string net(const char *name, const std::string &attrs)
{
    return std::string("<nic><net name=\"") + name + "\" " + attrs + "/></nic>\n";
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, LintNumbers,
    ::testing::Values(
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"2.5 GT/s PCIe\" "
                     "link_width=\"-2\"/>"),
                "link_width=\"-2\" of <pci> is outside 0 to 32"},
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 3,
                body("<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"2.5 GT/s PCIe\" "
                     "link_width=\"99999999999\"/>"),
                "does not fit 32 bits"},
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 2,
                "<system version=\"1\">\n<cpu numaid=\"-7\"/>\n</system>", "-1 to 1023"},
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 3, body(gpu("01", "dev=\"-1\" rank=\"0\"")),
                "dev=\"-1\""},
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 3, body(gpu("01", "dev=\"0\" rank=\"-4\"")),
                "rank=\"-4\""},
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 3, body(net("a", "port=\"256\"")), "0 to 255"},
        LintRow{"out-of-range", PVN_TOPO_LINT_WARN, 3,
                body(gpu("01", "dev=\"0\" rank=\"0\"",
                         "<nvlink target=\"0000:02:00.0\" count=\"-3\"/>")),
                "count=\"-3\""},
        LintRow{"not-a-number", PVN_TOPO_LINT_WARN, 3, body(gpu("01", "dev=\"first\" rank=\"0\"")),
                "is not a number"},
        LintRow{"absurd-speed", PVN_TOPO_LINT_WARN, 3,
                body(net("a", "speed=\"99999999999999999999\"")), "32 bits"},
        LintRow{"rank-repeated", PVN_TOPO_LINT_WARN, 4,
                body(gpu("01", "dev=\"0\" rank=\"0\"") + gpu("02", "dev=\"1\" rank=\"0\"")),
                "also used in line 3"},
        LintRow{"gpu-dev-repeated", PVN_TOPO_LINT_WARN, 4,
                body(gpu("01", "dev=\"3\" rank=\"0\"") + gpu("02", "dev=\"3\" rank=\"1\"")),
                "dev=\"3\" of <gpu> is also used in line 3"},
        LintRow{"net-dev-repeated", PVN_TOPO_LINT_WARN, 4,
                body(net("a", "dev=\"0\"") + net("b", "dev=\"0\"")), "also used in line 3"},
        LintRow{"nvlink-target", PVN_TOPO_LINT_WARN, 3,
                body(gpu("01", "dev=\"0\" rank=\"0\"",
                         "<nvlink target=\"0000:01:00.0\" tclass=\"0x030200\" count=\"1\"/>")),
                "the GPU it is in"}),
    [](const auto &row) {
        std::string name = row.param.rule;
        for (char &c : name) {
            c = c == '-' ? '_' : c;
        }
        return name + "_" + std::to_string(row.index);
    });

// NCCL ends the job if one direction of a link that it uses is missing.
TEST(LintReverse, ALinkNeedsIt)
{
    auto found = [](const std::string &xml) {
        std::string text;
        for (const pvn_topo_lint_finding &f : lint(xml))
            if (strcmp(f.rule, "one-way-link") == 0)
                text += std::to_string(f.level == PVN_TOPO_LINT_ERROR) + ":" +
                        std::to_string(f.line) + " " + f.what;
        return text;
    };
    auto nvlink = [](const char *to) {
        return std::string("<nvlink target=\"0000:") + to +
               ":00.0\" tclass=\"0x030200\" count=\"2\"/>";
    };
    auto gpus = [](const std::string &a, const std::string &b) {
        return body(gpu("01", "dev=\"0\" rank=\"0\"", a.c_str()) +
                    gpu("02", "dev=\"1\" rank=\"1\"", b.c_str()));
    };
    EXPECT_EQ(
        "1:3 <nvlink target=\"0000:02:00.0\"> in 0000:01:00.0, but none leads back: NCCL does "
        "not start (\"Failed to find reverse path\")",
        found(gpus(nvlink("02"), "")));
    EXPECT_EQ("", found(gpus(nvlink("02"), nvlink("01"))));
    auto switches = [](const char *a, const char *b) {
        return body(std::string("<pci busid=\"0000:01:00.0\" class=\"0x060400\">\n") + a +
                    "</pci>\n<pci busid=\"0000:02:00.0\" class=\"0x060400\">\n" + b + "</pci>");
    };
    const char to1[] = "<pcilink target=\"0000:01:00.0\"/>",
               to2[] = "<pcilink target=\"0000:02:00.0\"/>";
    EXPECT_EQ(
        "1:4 <pcilink target=\"0000:02:00.0\"> in 0000:01:00.0, but none leads back: NCCL does "
        "not start (\"Failed to find reverse path\")",
        found(switches(to2, "")));
    EXPECT_EQ("", found(switches(to2, to1)));
    EXPECT_EQ("", found(body(std::string("<pci busid=\"0000:01:00.0\" class=\"0x060400\">") + to2 +
                             "</pci>")))
        << "a switch that the file does not have";
}

TEST(LintNumbersFine, SeveralRanksOnOneGpuAndSeveralHostsAreNoMistake)
{
    std::string two_hosts = "<system version=\"1\">\n"
                            "<cpu numaid=\"0\" host_hash=\"0x1\">\n" +
                            gpu("01", "dev=\"0\" rank=\"0\"") +
                            "</cpu>\n<cpu numaid=\"0\" host_hash=\"0x2\">\n" +
                            gpu("01", "dev=\"0\" rank=\"1\"") + "</cpu>\n</system>";
    std::string shared = body("<pci busid=\"0000:01:00.0\" class=\"0x030200\">"
                              "<gpu dev=\"0\" rank=\"0\"/><gpu dev=\"0\" rank=\"1\"/></pci>");
    for (const auto &xml : {two_hosts, shared}) {
        for (const pvn_topo_lint_finding &f : lint(xml))
            EXPECT_EQ(nullptr, strstr(f.rule, "dev-repeated")) << f.what;
    }
}

// A mistake that is repeated in the same parent is one finding.
TEST(LintFold, OneMistakeInOnePlaceIsOneRemark)
{
    auto count = [](const std::string &xml, const char *rule) {
        int n = 0;
        for (const pvn_topo_lint_finding &f : lint(xml))
            n += strcmp(f.rule, rule) == 0 ? f.count * 1000 + 1 : 0;
        return n;
    };
    std::string flat = body(many(106, "<pci busid=\"00%02x:%02x:00.0\" link_speed=\"\"/>\n"));
    EXPECT_EQ(106001, count(flat, "link-speed"));
    for (const pvn_topo_lint_finding &f : lint(flat)) {
        if (strcmp(f.rule, "link-speed") == 0) {
            EXPECT_EQ(3, f.line);
            EXPECT_NE(nullptr, strstr(f.what, "; others of this kind in line 4, 5")) << f.what;
        }
    }
    // If the parents differ a few are findings of their own, and the last one stands for the rest.
    std::string apart = body(many(106, "<pci busid=\"00%02x:%02x:00.0\" class=\"0x060400\">"
                                       "<gpu dev=\"x\"/></pci>\n"));
    EXPECT_EQ(106008, count(apart, "not-a-number"));
    // Mistakes of two rules are not folded into one.
    EXPECT_EQ(1001, count(body("<pci busid=\"0000:01:00.0\" link_speed=\"\"/>\n"
                               "<pci busid=\"0000:02:00.0\" link_width=\"0\"/>"),
                          "link-width"));
}

// A finding that names another line is about the same id. Once "is also used in line 3" stood at a line with another id.
TEST(LintFold, WhatNamesALineIsOfOneThing)
{
    auto bridge = [](const char *bus) {
        return "<pci busid=\"0000:" + std::string(bus) + ":00.0\" class=\"0x060400\"/>\n";
    };
    std::vector<std::string> said;
    for (const auto &f :
         lint(body(bridge("01") + bridge("02") + bridge("01") + bridge("02") + bridge("01"))))
        said.push_back(std::to_string(f.line) + ": " + f.what);
    EXPECT_EQ((std::vector<std::string>{
                  "5: busid=\"0000:01:00.0\" is also used in line 3; also in line 7",
                  "6: busid=\"0000:02:00.0\" is also used in line 4"}),
              said);
    said.clear();
    for (const auto &f : lint(body(net("a", "dev=\"0\"") + net("b", "dev=\"1\"") +
                                   net("c", "dev=\"0\"") + net("d", "dev=\"1\"")))) {
        if (strcmp(f.rule, "net-dev-repeated") == 0)
            said.push_back(f.what);
    }
    EXPECT_EQ((std::vector<std::string>{"dev=\"0\" of <net> is also used in line 3",
                                        "dev=\"1\" of <net> is also used in line 4"}),
              said);
}

// ---- AMD's GPUs: RCCL's rules ----

std::string amd(const std::string &inner)
{
    std::string xml = body(inner);
    xml.replace(xml.find("\"1\""), 3, "\"2\"");
    return xml;
}

// "LEVEL rule: text" of a rule.
std::string finding(const std::string &xml, const char *rule)
{
    for (const pvn_topo_lint_finding &f : lint(xml)) {
        if (strcmp(f.rule, rule) == 0)
            return std::string(pvn_topo_lint_level_name(f.level)) + ": " + f.what;
    }
    return "";
}

TEST(LintRccl, AFileThatRcclWritesIsFine)
{
    std::string xml = amd(
        "<pci busid=\"0000:0c:00.0\" class=\"0x120000\" vendor=\"0x1002\" device=\"0x74a1\" "
        "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n<gpu dev=\"0\" sm=\"304\" gcn=\"gfx942\" "
        "arch=\"169087\" rank=\"0\" gdr=\"1\">\n<xgmi target=\"0000:22:00.0\" count=\"1\" "
        "tclass=\"0x120000\"/>\n</gpu>\n</pci>\n<pci busid=\"0000:22:00.0\" class=\"0x120000\"/>");
    pvn_topo_lint l;
    ASSERT_EQ(0, pvn_topo_nccl_lint(xml.data(), xml.size(), &l));
    EXPECT_STREQ("RCCL", l.reader->name);
    for (int i = 0; i < l.n; i++)
        EXPECT_EQ(PVN_TOPO_LINT_NOTE, l.findings[i].level) << l.findings[i].what;
    pvn_topo_lint_free(&l);
    std::string other = body(good_pci);
    ASSERT_EQ(0, pvn_topo_nccl_lint(other.data(), other.size(), &l));
    EXPECT_STREQ("NCCL", l.reader->name);
    pvn_topo_lint_free(&l);
}

TEST(LintRccl, ItsLimitsAreItsOwn)
{
    const char pci[] = "<pci busid=\"00%02x:%02x:00.0\" class=\"0x060400\"/>\n";
    EXPECT_EQ("", finding(amd(many(32, pci)), "children"));
    EXPECT_EQ(0u,
              finding(amd(many(33, pci)), "children").find("NOTE: <cpu> has 33 children: RCCL"));
    EXPECT_EQ("ERROR: <cpu> has 513 children: RCCL takes 512",
              finding(amd(many(513, pci)), "children"));
    EXPECT_EQ("", finding(amd(many(300, pci)), "nodes")) << "NCCL's 255 are not RCCL's";
    EXPECT_EQ(0u, finding(amd(many(1100, pci)), "nodes").find("NOTE: 1102 elements: RCCL before"));
    EXPECT_EQ("ERROR: 8192 elements: RCCL holds 8191 and stops at the next",
              finding(amd(many(8190, pci)), "nodes"));
    std::string below = many(65, "<pci busid=\"00%02x:%02x:00.0\" class=\"0x060400\">"
                                 "<pci busid=\"0100:01:00.0\" class=\"0x020000\"/></pci>\n");
    EXPECT_EQ("WARN: 65 PCI switches: RCCL holds 64, and stops where a job uses more",
              finding(amd(below), "kinds"));
    EXPECT_EQ("", finding(body(below), "kinds"));
}

TEST(LintRccl, ItsElementsAndClassesAreItsOwn)
{
    auto gpu = [](const char *class_text, const char *inner) {
        return "<pci busid=\"0000:01:00.0\" class=\"" + std::string(class_text) + "\">\n<gpu>\n" +
               inner + "</gpu>\n</pci>\n";
    };
    EXPECT_EQ("WARN: <nvlink> inside <gpu> is ignored by RCCL with everything in it",
              finding(amd(gpu("0x038000", "<nvlink target=\"x\"/>\n")), "ignored-element"));
    EXPECT_EQ("WARN: <xgmi> inside <gpu> is ignored by NCCL with everything in it",
              finding(body(gpu("0x038000", "<xgmi target=\"x\"/>\n")), "ignored-element"));
    EXPECT_EQ("", finding(amd(gpu("0x120000", "")), "gpu-class"));
    EXPECT_EQ(0u, finding(body(gpu("0x120000", "")), "gpu-class").find("ERROR"));
    EXPECT_EQ(0u, finding(amd(gpu("0x0b4000", "")), "gpu-class").find("WARN"));
}

// Findings in a file for RCCL name RCCL, not NCCL.
TEST(LintRccl, NothingIsSaidOfNccl)
{
    std::ifstream in(PVN_SRCDIR "/tests/topo/data/traps.xml");
    std::string xml((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    size_t version = xml.find("<system version=\"1\"");
    ASSERT_NE(std::string::npos, version);
    size_t as_nccl = lint(xml).size();
    xml[version + sizeof("<system version=\"") - 1] = '2';
    auto found = lint(xml);
    EXPECT_EQ(as_nccl, found.size());
    for (const pvn_topo_lint_finding &f : found) {
        std::string all = std::string(f.what) + " " + f.remedy;
        for (size_t at = all.find("NCCL"); at != std::string::npos; at = all.find("NCCL", at + 1))
            EXPECT_TRUE(all.compare(at, 5, "NCCL_") == 0) << all;
    }
}

// ---- rules that compare several nodes ----

std::string host(const char *hash, const std::string &content)
{
    return "<cpu numaid=\"0\" host_hash=\"" + std::string(hash) + "\" arch=\"arm64\">\n" + content +
           "</cpu>\n";
}

std::vector<std::string> said_of(const std::string &xml)
{
    std::vector<std::string> all;
    for (const pvn_topo_lint_finding &f : lint(xml)) {
        if (strcmp(f.rule, "gpu-net-tags") != 0)
            all.push_back(std::string(f.rule) + ": " + f.what);
    }
    return all;
}

// Trays that NVLink joins are hosts with the same bus ids and device names.
TEST(LintHosts, ADumpOfTwoIsSaidOnce)
{
    auto tray = [](int first) {
        std::string rank = std::to_string(first), next = std::to_string(first + 1);
        return gpu("01", ("dev=\"0\" rank=\"" + rank + "\"").c_str()) +
               gpu("02", ("dev=\"1\" rank=\"" + next + "\"").c_str()) +
               "<pci busid=\"0000:03:00.0\" class=\"0x020700\"><nic>"
               "<net name=\"mlx5_0\" dev=\"0\" speed=\"400000\"/></nic></pci>\n";
    };
    auto said = said_of("<system version=\"1\">\n" + host("0xaaa1", tray(0)) +
                        host("0xbbb2", tray(2)) + host("0xbbb2", "") + "</system>");
    ASSERT_EQ(2u, said.size()) << said[0];
    EXPECT_EQ("several-hosts: this is a dump of 2 hosts that NVLink joins (host_hash 0xaaa1 in "
              "line 2, 0xbbb2 here): as NCCL_TOPO_FILE all of it counts as one host",
              said[0]);
    EXPECT_EQ(0u, said[1].find("numaid-repeated")) << "the second host has one node twice";
    // Within one host a repeated id is still a finding.
    said = said_of("<system version=\"1\">\n" + host("0x1", tray(0)) +
                   host("0x2", tray(2) + "<pci busid=\"0000:03:00.0\" class=\"0x060400\"/>\n") +
                   "</system>");
    ASSERT_EQ(2u, said.size());
    EXPECT_EQ(0u, said[1].find("bus-id-repeated")) << said[1];
}

TEST(LintOdd, TheGpuWhoseLinksDifferFromAllOthers)
{
    auto gpus = [](int n, int odd, const char *width, int links) {
        std::string all;
        for (int i = 0; i < n; i++) {
            std::string id = std::to_string(i + 1), w = i == odd ? width : "16";
            all += "<pci busid=\"0000:0" + id +
                   ":00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x20b2\" "
                   "link_speed=\"16.0 GT/s PCIe\" link_width=\"" +
                   w + "\"><gpu dev=\"" + std::to_string(i) + "\" rank=\"" + std::to_string(i) +
                   "\"><nvlink target=\"0000:0a:00.0\" tclass=\"0x068000\" count=\"" +
                   std::to_string(i == odd ? links : 12) + "\"/></gpu></pci>\n";
        }
        return body(all);
    };
    using V = std::vector<std::string>;
    EXPECT_EQ(V{}, said_of(gpus(4, -1, "", 0)));
    EXPECT_EQ(V{"odd-link: GPU 0000:03:00.0 has 16.0 GT/s PCIe x8, the 3 others of device 0x20b2 "
                "have 16.0 GT/s PCIe x16"},
              said_of(gpus(4, 2, "8", 12)));
    EXPECT_EQ(V{"odd-nvlinks: GPU 0000:01:00.0 has 11 NVLinks, the 3 others of device 0x20b2 have "
                "12 NVLinks"},
              said_of(gpus(4, 0, "16", 11)));
    // Two GPUs alone do not show which one is wrong.
    EXPECT_EQ(V{}, said_of(gpus(2, 1, "8", 10)));
}

// The remedy fits the case.
TEST(LintRemedy, OfOneCaseIsNotGivenForAnother)
{
    auto remedy = [](const std::string &xml, const char *rule) -> std::string {
        for (const pvn_topo_lint_finding &f : lint(xml))
            if (strcmp(f.rule, rule) == 0)
                return f.remedy;
        return "";
    };
    std::string link = "link_speed=\"2.5 GT/s PCIe\" link_width=\"1\"";
    std::string gpu_pci = "<pci busid=\"0000:02:00.0\" class=\"0x030200\" ";
    EXPECT_NE(std::string::npos, remedy(body("<pci busid=\"0000:01:00.0\" class=\"0x060400\" " +
                                             link + ">" + gpu_pci + "/></pci>"),
                                        "slow-link")
                                     .find("emulated"));
    std::string of_gpu = remedy(body(gpu_pci + link + "/>"), "slow-link");
    EXPECT_EQ(std::string::npos, of_gpu.find("switch")) << of_gpu;
    EXPECT_NE(std::string::npos, of_gpu.find("the device")) << of_gpu;
    EXPECT_NE(remedy("", "parse"), remedy("<system version=\"1\">\n</cpu>", "parse"));
    EXPECT_NE(std::string::npos, remedy("<topology/>", "parse").find("outermost element"));
}

TEST(LintClean, AGoodFileHasNoFindings)
{
    std::string xml =
        "<!-- two switches, written by hand -->\n"
        "<system version=\"1\">\n"
        "  <cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
        "familyid=\"6\" "
        "modelid=\"143\">\n"
        "    <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" "
        "link_width=\"16\">\n"
        "      <pci busid=\"0000:03:00.0\" class=\"0x030200\"/>\n"
        "      <pci busid=\"0000:0b:00.0\"/>\n"
        "    </pci>\n"
        "  </cpu>\n"
        "</system>\n";
    for (const pvn_topo_lint_finding &f : lint(xml))
        ADD_FAILURE() << f.line << ": " << f.rule << ": " << f.what;
}

TEST(LintClean, SpacesBeforeTheEndOfATagAreFine)
{
    for (const pvn_topo_lint_finding &f :
         lint(body("<pci busid=\"0000:01:00.0\"  class='0x060400' />")))
        ADD_FAILURE() << f.line << ": " << f.rule << ": " << f.what;
}

TEST(LintOrder, FindingsComeByLine)
{
    int last = 0;
    std::string xml = "<system version=\"2\">\n<cpu numaid=\"-1\">\n<gpu/>\n<nic>\n<net name=\"a\" "
                      "speed=\"0\"/></nic>\n"
                      "</cpu>\n</system>";
    auto found = lint(xml);
    EXPECT_GE(found.size(), 4u);
    for (const pvn_topo_lint_finding &f : found) {
        EXPECT_LE(last, f.line);
        last = f.line;
    }
}

} // namespace
