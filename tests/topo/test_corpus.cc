// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests every NCCL topology file of the collection against the facts in its INDEX, which other code computed: NUMA
// nodes, switches, GPUs, NICs and the class of the nearest NIC.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "shared.h"
#include "topo/nccl/nccl_tree.h"
#include "topo/nccl/nccl_xml.h"

namespace
{

struct Row {
    std::string file, notes;
    int numa, switches, gpus, nics, nets;
    std::map<std::string, int> nearest;
};

std::vector<std::string> cells(const std::string &line)
{
    std::vector<std::string> out;
    std::stringstream in(line);
    for (std::string cell; std::getline(in, cell, '|');) {
        size_t a = cell.find_first_not_of(' '), b = cell.find_last_not_of(' ');
        out.push_back(a == std::string::npos ? "" : cell.substr(a, b - a + 1));
    }
    return out;
}

// "SYS x4, PIX x4; real dump" -> {SYS 4, PIX 4}
std::map<std::string, int> classes(const std::string &text)
{
    std::map<std::string, int> out;
    std::stringstream in(text.substr(0, text.find(';')));
    for (std::string part; std::getline(in, part, ',');) {
        size_t x = part.rfind(" x");
        size_t a = part.find_first_not_of(' ');
        if (x != std::string::npos && x - a == 3)
            out[part.substr(a, 3)] = std::stoi(part.substr(x + 2));
    }
    return out;
}

std::vector<Row> index_rows()
{
    std::vector<Row> rows;
    std::ifstream in(shared_topologies() + "/INDEX.md");
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("| `nccl-xml/", 0) != 0)
            continue;
        std::vector<std::string> c = cells(line);
        if (c[3] == "-")
            continue;
        Row row;
        row.file = c[1].substr(1, c[1].size() - 2);
        row.notes = c[7];
        row.numa = std::stoi(c[3]);
        row.switches = std::stoi(c[4]);
        row.gpus = std::stoi(c[5]);
        row.nics = std::stoi(c[6]);
        size_t paren = c[6].find('(');
        row.nets = paren == std::string::npos ? -1 : std::stoi(c[6].substr(paren + 1));
        row.nearest = classes(c[7]);
        rows.push_back(row);
    }
    return rows;
}

int read(const std::string &path, pvn_topo_ndoc **doc, pvn_topo_xml_error *err)
{
    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return pvn_topo_nccl_xml_parse(text.data(), text.size(), doc, err);
}

struct Loaded {
    pvn_topo_ndoc *doc = nullptr;
    pvn_topo_ntree *tree = nullptr;
    ~Loaded()
    {
        pvn_topo_ntree_free(tree);
        pvn_topo_ndoc_free(doc);
    }
    void load(const std::string &path)
    {
        pvn_topo_xml_error err;
        char why[256];
        ASSERT_EQ(0, read(path, &doc, &err)) << path << ": " << err.text;
        ASSERT_EQ(0, pvn_topo_ndoc_complete(doc));
        ASSERT_EQ(0, pvn_topo_ntree_new(doc, nullptr, &tree, why, sizeof why))
            << path << ": " << why;
    }
};

class Corpus : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        rows = index_rows();
        if (rows.empty())
            GTEST_SKIP() << "no " << shared_topologies() << "/INDEX.md (set PVN_SHARED)";
    }
    std::vector<Row> rows;
};

TEST_F(Corpus, TheIndexNamesTheWholeCollection)
{
    EXPECT_EQ(58u, rows.size());
}

TEST_F(Corpus, CountsAndNearestClassesAreThoseOfTheIndex)
{
    for (const Row &row : rows) {
        SCOPED_TRACE(row.file);
        Loaded m;
        m.load(shared_topologies() + "/" + row.file);
        if (m.tree == nullptr)
            continue;
        const pvn_topo_ntree *t = m.tree;
        int switches = 0, nics = 0;
        for (int i = 0; i < t->n_nodes; i++) {
            switches += t->nodes[i].kind == PVN_TOPO_NN_PCI && t->nodes[i].up >= 0;
            nics += t->nodes[i].kind == PVN_TOPO_NN_NIC;
        }
        bool partial = row.notes.rfind("partial", 0) == 0;
        EXPECT_EQ(row.numa, t->n_cpus);
        EXPECT_EQ(row.switches, partial ? 0 : switches);
        EXPECT_EQ(row.gpus, t->n_gpus);
        // NCCL counts NICs with the same bus id as one. One file has two such NICs.
        EXPECT_EQ(row.nics - (row.notes.find("two NICs") != std::string::npos), nics);
        EXPECT_EQ(row.nets >= 0 ? row.nets : row.nics, t->n_nets);
        std::map<std::string, int> nearest;
        for (int g = 0; g < t->n_gpus; g++) {
            pvn_topo_npath best = PVN_TOPO_NPATH_DIS;
            for (int n = 0; n < t->n_nets; n++)
                best = std::min(best, pvn_topo_ntree_gpu_net(t, g, n)->type);
            nearest[pvn_topo_npath_name(best)]++;
        }
        EXPECT_EQ(row.nearest, nearest);
    }
}

std::string written(const pvn_topo_ndoc *doc)
{
    char *text = nullptr;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    const pvn_topo_ndoc_node *bad = nullptr;
    EXPECT_EQ(0, pvn_topo_ndoc_write(doc, out, &bad));
    fclose(out);
    std::string result(text, len);
    free(text);
    return result;
}

// The document as text: every node with its attributes, in order.
std::string flat(const pvn_topo_ndoc_node *node, int level)
{
    std::string text = std::to_string(level) + " " + node->name;
    for (int i = 0; i < node->n_attrs; i++)
        text += std::string(" ") + node->attrs[i].key + "=" + node->attrs[i].value;
    text += "\n";
    for (int i = 0; i < node->n_subs; i++)
        text += flat(node->subs[i], level + 1);
    return text;
}

TEST_F(Corpus, WhatIsWrittenReadsBackTheSame)
{
    for (const Row &row : rows) {
        SCOPED_TRACE(row.file);
        pvn_topo_xml_error err;
        pvn_topo_ndoc *first = nullptr, *second = nullptr;
        std::string path = shared_topologies() + "/" + row.file;
        ASSERT_EQ(0, read(path, &first, &err)) << err.text;
        std::string text = written(first);
        ASSERT_EQ(0, pvn_topo_nccl_xml_parse(text.data(), text.size(), &second, &err))
            << err.line << ": " << err.text;
        EXPECT_EQ(flat(pvn_topo_ndoc_find(first, "system", nullptr, nullptr), 0),
                  flat(pvn_topo_ndoc_find(second, "system", nullptr, nullptr), 0));
        EXPECT_EQ(text, written(second));
        pvn_topo_ndoc_free(first);
        pvn_topo_ndoc_free(second);
    }
}

TEST_F(Corpus, AGraphFileIsRecognisedAsOne)
{
    pvn_topo_xml_error err;
    pvn_topo_ndoc *doc = nullptr;
    std::string path = shared_topologies() + "/nccl-xml/azure/ncv4-graph.xml";
    EXPECT_EQ(-EINVAL, read(path, &doc, &err));
    EXPECT_EQ(nullptr, doc);
    EXPECT_EQ(PVN_TOPO_XML_GRAPHS, err.kind);
    EXPECT_NE(std::string::npos, std::string(err.text).find("NCCL_GRAPH_FILE")) << err.text;
    EXPECT_EQ(1, err.line);
}

} // namespace
