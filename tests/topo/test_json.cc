// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests output for programs: a real validator checks the JSON schema, and documents of many trees against it; names
// are unique; the XML has the version of the library that reads it.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

namespace fs = std::filesystem;

namespace
{

const char schema[] = PVN_SRCDIR "/topo/pvn-topo.schema.json";

// Two ranks on one GPU, and two nets with the same number, one without a speed.
const char repeats[] = "<system version=\"1\">\n"
                       " <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\">\n"
                       "  <pci busid=\"0000:01:00.0\" class=\"0x030200\">\n"
                       "   <gpu dev=\"0\" rank=\"0\"/><gpu dev=\"0\" rank=\"1\"/>\n"
                       "  </pci>\n"
                       "  <pci busid=\"0000:02:00.0\" class=\"0x020000\">\n"
                       "   <nic><net name=\"a\" dev=\"0\" speed=\"100000\"/></nic>\n"
                       "  </pci>\n"
                       "  <pci busid=\"0000:03:00.0\" class=\"0x020000\">\n"
                       "   <nic><net name=\"b\" dev=\"0\"/></nic>\n"
                       "  </pci>\n </cpu>\n</system>\n";

class Json : public ::testing::Test
{
  protected:
    TempDir dir;

    void put(const std::string &name, const std::string &content)
    {
        std::ofstream(dir.path + "/" + name, std::ios::binary) << content;
    }
    Result run(const std::string &args)
    {
        return run_tool(dir.path, "--no-names " + args, "NCCL_IB_FIFO_TC=46");
    }
    json_t *parse(const std::string &args)
    {
        Result r = run(args);
        json_error_t error;
        json_t *doc = json_loads(r.out.c_str(), 0, &error);
        EXPECT_NE(nullptr, doc) << args << ": " << error.text << r.err;
        return doc;
    }
    // Returns 0 if the files are valid, 1 if not (then why has the reason), 77 without a validator.
    int validate(const std::string &files, std::string &why)
    {
        std::string command = "cd " + dir.path +
                              " && python3 " PVN_SRCDIR "/tests/topo/schema_check.py " + schema +
                              " " + files + " >valid.txt 2>&1";
        int rc = std::system(command.c_str());
        why = read_file(dir.path + "/valid.txt");
        return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
    }
};

TEST_F(Json, TheSchemaIsValidAndWhatIsPrintedFitsIt)
{
    std::string why, files;
    int rc = validate("", why);
    if (rc == 77 || rc == 127)
        GTEST_SKIP() << "no validator: install python3-jsonschema";
    ASSERT_EQ(0, rc) << why;

    put("guest.tar", vmware_guest({}).tar());
    put("server.tar", server8x8(false, false).tar());
    put("repeats.xml", repeats);
    std::vector<std::string> roots = {"guest.tar", "server.tar", "repeats.xml",
                                      PVN_SRCDIR "/tests/topo/data/two-switches.xml"};
    for (const char *more : {"nccl-xml/azure/ncv4-topo.xml", "nccl-xml/rccl/topo_8p_940.xml",
                             "nccl-xml/mlperf/xe8545_nic_affinity.xml"}) {
        if (fs::exists(shared_topologies() + "/" + more))
            roots.push_back(shared_topologies() + "/" + more);
    }
    int n = 0;
    auto add = [&](const std::string &args) {
        std::string name = std::to_string(n++) + ".json";
        put(name, run(args).out);
        files += name + " ";
    };
    for (const auto &root : roots) {
        for (const char *command : {"dump", "matrix", "pairs"})
            add("--root " + root + " --json " + command);
    }
    add("--root guest.tar --json check");
    add("--root guest.tar --json why GPU0 vmw_pvrdma0");
    add("--root repeats.xml --json why GPU0#2 NIC0#2");
    add("--json lint " PVN_SRCDIR "/tests/topo/data/traps.xml");
    add("--json params");
    add("--json diff guest.tar server.tar");
    EXPECT_NE(std::string::npos, run("--json params").out.find("\"missed\": true"));
    EXPECT_EQ(0, validate(files, why)) << why;
    // The validator refuses a wrong document.
    put("bad.json", "{\"format\": \"pvn-topo\", \"surprise\": 1}");
    EXPECT_EQ(1, validate("bad.json", why));
    EXPECT_NE(std::string::npos, why.find("surprise")) << why;
}

TEST_F(Json, NamesMeanOneThingWhenNumbersRepeat)
{
    put("repeats.xml", repeats);
    json_t *doc = parse("--root repeats.xml --json dump");
    std::set<std::string> names;
    for (const char *kind : {"gpus", "nics"}) {
        size_t i;
        json_t *o;
        json_array_foreach(json_object_get(doc, kind), i, o)
                EXPECT_TRUE(names.insert(json_string_value(json_object_get(o, "name"))).second)
            << kind << " " << i;
    }
    EXPECT_EQ((std::set<std::string>{"GPU0", "GPU0#2", "NIC0", "NIC0#2"}), names);
    // Distances use the same names.
    EXPECT_EQ(4u, json_array_size(json_object_get(doc, "distances")));
    json_decref(doc);
    doc = parse("--root repeats.xml --json why GPU0#2 NIC0#2");
    EXPECT_STREQ("GPU0#2", json_string_value(json_object_get(doc, "gpu")));
    EXPECT_STREQ("NIC0#2", json_string_value(json_object_get(doc, "nic")));
    json_decref(doc);
    EXPECT_EQ(2, run("--root repeats.xml why GPU0#3 NIC0").status);
}

TEST_F(Json, AnUnknownSpeedIsNullAndTheTextNamesNcclsDefault)
{
    put("repeats.xml", repeats);
    json_t *doc = parse("--root repeats.xml --json matrix");
    json_t *nics = json_object_get(doc, "nics");
    EXPECT_EQ(100000, json_integer_value(json_object_get(json_array_get(nics, 0), "speed_mbits")));
    EXPECT_TRUE(json_is_null(json_object_get(json_array_get(nics, 1), "speed_mbits")));
    json_decref(doc);
    for (const char *command : {"matrix", "dump", "why GPU0 b"}) {
        std::string out = run(std::string("--root repeats.xml ") + command).out;
        EXPECT_NE(std::string::npos, out.find("speed unknown (NCCL counts 10 Gb/s)"))
            << command << ": " << out;
    }
}

// RCCL reads only version 2, and NCCL only version 1.
TEST_F(Json, TheXmlHasTheVersionOfTheLibraryThatRunsOnTheseGpus)
{
    put("nvidia.tar", server8x8(false, false).tar());
    Tree amd = server8x8(false, false);
    put("amd.tar", amd.tar());
    std::string text = read_file(dir.path + "/amd.tar");
    int changed = 0;
    for (size_t at; (at = text.find("0x10de\n")) != std::string::npos; changed++)
        text.replace(at, 7, "0x1002\n");
    ASSERT_GT(changed, 0);
    put("amd.tar", text);
    for (const char *format : {"--xml", "--xml-full"}) {
        Result r = run(std::string("--root nvidia.tar ") + format + " dump");
        EXPECT_EQ(0u, r.out.find("<system version=\"1\">")) << format << r.out << r.err;
        r = run(std::string("--root amd.tar ") + format + " dump");
        EXPECT_EQ(0u, r.out.find("<system version=\"2\">")) << format << r.out << r.err;
        put("again.xml", r.out);
        EXPECT_EQ(0, run("--root again.xml dump").status);
        // A file for RCCL that is read and written again stays one for RCCL, because NCCL does not run on AMD's GPUs.
        EXPECT_EQ(0u, run(std::string("--root again.xml ") + format + " dump")
                          .out.find("<system version=\"2\">"));
    }
}

} // namespace
