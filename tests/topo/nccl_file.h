/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A fixture for a machine described by NCCL XML text: loads the text and computes the pairs of GPUs and NICs.
#ifndef PVN_TESTS_TOPO_NCCL_FILE_H
#define PVN_TESTS_TOPO_NCCL_FILE_H

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "topo/nccl/gdr.h"
#include "topo/nccl/nccl_xml.h"
#include "topo/nccl/pair.h"

using Env = std::map<std::string, std::string>;

inline const char *env_get(const char *name, void *user)
{
    auto *env = static_cast<Env *>(user);
    auto it = env->find(name);
    return it == env->end() ? nullptr : it->second.c_str();
}

inline pvn_topo_nccl_env nccl_env(Env vars)
{
    static Env kept; // m points to its force_merge
    kept = vars;
    pvn_topo_nccl_env env;
    pvn_topo_nccl_env_load(&env, env_get, &kept);
    return env;
}

struct NcclFile {
    pvn_topo_ndoc *doc = nullptr;
    pvn_topo_ntree *tree = nullptr;
    pvn_topo_pairs *pairs = nullptr;

    explicit NcclFile(const std::string &xml, const Env &vars = {}, bool complete = true)
    {
        pvn_topo_xml_error err;
        char why[256] = "";
        pvn_topo_nccl_env env = nccl_env(vars);
        EXPECT_EQ(0, pvn_topo_nccl_xml_parse(xml.data(), xml.size(), &doc, &err)) << err.text;
        if (doc == nullptr)
            return;
        if (complete) {
            EXPECT_EQ(0, pvn_topo_ndoc_complete(doc));
        }
        EXPECT_EQ(0, pvn_topo_ntree_new(doc, &env, &tree, why, sizeof why)) << why;
        if (tree != nullptr) {
            EXPECT_EQ(0, pvn_topo_pairs_of_tree(nullptr, nullptr, tree, &pairs));
        }
    }
    ~NcclFile()
    {
        pvn_topo_pairs_free(pairs);
        pvn_topo_ntree_free(tree);
        pvn_topo_ndoc_free(doc);
    }
    NcclFile(const NcclFile &) = delete;
    NcclFile &operator=(const NcclFile &) = delete;

    std::string type(int gpu, int net) const
    {
        return pvn_topo_npath_name(pvn_topo_ntree_gpu_net(tree, gpu, net)->type);
    }
    float bw(int gpu, int net) const
    {
        return pvn_topo_ntree_gpu_net(tree, gpu, net)->bw;
    }
    std::string used(int gpu, int net) const
    {
        return pvn_topo_npath_name(pvn_topo_ntree_route(tree, gpu, net)->type);
    }
    std::string gpus(int from, int to) const
    {
        return pvn_topo_npath_name(pvn_topo_ntree_gpu_gpu(tree, from, to)->type);
    }
    std::string net_name(int net) const
    {
        return tree->nodes[tree->nets[net]].net.name;
    }
    std::string pick(int gpu, int channel = 0) const
    {
        int net = pvn_topo_ntree_pick(tree, gpu, channel);
        return net < 0 ? "none" : net_name(net);
    }
    int count(pvn_topo_nnode_kind kind) const
    {
        int n = 0;
        for (int i = 0; i < tree->n_nodes; i++)
            n += tree->nodes[i].kind == kind && (kind != PVN_TOPO_NN_PCI || tree->nodes[i].up >= 0);
        return n;
    }
};

// Functions that write the elements of a file.
inline std::string sys(const std::string &inner)
{
    return "<system version=\"1\">" + inner + "</system>";
}
inline std::string cpu(int numa, const std::string &inner,
                       const std::string &more = "arch=\"x86_64\" vendor=\"GenuineIntel\" "
                                                 "familyid=\"6\" modelid=\"143\"")
{
    return "<cpu numaid=\"" + std::to_string(numa) + "\" " + more + ">" + inner + "</cpu>";
}
inline std::string
bridge(const std::string &busid, const std::string &inner,
       const std::string &more = "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"")
{
    return "<pci busid=\"" + busid + "\" class=\"0x060400\" " + more + ">" + inner + "</pci>";
}
inline std::string gpu(const std::string &busid, int dev, const std::string &inner = "",
                       const std::string &more = "sm=\"90\"",
                       const std::string &link = "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"")
{
    std::string n = std::to_string(dev);
    return "<pci busid=\"" + busid + "\" class=\"0x030200\" " + link + "><gpu dev=\"" + n +
           "\" rank=\"" + n + "\" " + more + ">" + inner + "</gpu></pci>";
}
inline std::string nic(const std::string &busid, const std::string &name, int dev,
                       int speed = 200000, const std::string &more = "",
                       const std::string &link = "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"")
{
    return "<pci busid=\"" + busid + "\" class=\"0x020700\" " + link + "><nic><net name=\"" + name +
           "\" dev=\"" + std::to_string(dev) + "\" speed=\"" + std::to_string(speed) +
           "\" guid=\"0x" + std::to_string(1000 + dev) + "\" port=\"1\" " + more + "/></nic></pci>";
}

#endif
