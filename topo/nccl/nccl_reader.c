/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The two readers of topology files and their differences. */
#include "topo/nccl/nccl_xml.h"

const struct pvn_topo_nreader *pvn_topo_nreader_of(bool rccl)
{
    /* NCCL's graph holds more nodes of a kind than a file has elements. RCCL: src/graph/xml.h,
     * topo.h, src/include/graph.h; versions up to 2.18 write beyond a 32nd child without an
     * error. */
    static const struct pvn_topo_nreader nccl = {
        .name = "NCCL",
        .judged = "NCCL, which reads version 1; version 2 is for AMD's RCCL",
        .nodes = 255,
        .old_nodes = 255,
        .subs = 640,
        .old_subs = 32,
        .kind = 255,
        .old_text = "NCCL 2.19 takes 32, 2.23 takes 128",
        .old_remedy = "nothing to do from NCCL 2.29 on",
        .nodes_remedy = "leave out what the job does not need, <nvlink> first"};
    static const struct pvn_topo_nreader amd = {
        .name = "RCCL",
        .judged = "RCCL (AMD's GPUs), which reads version 2; version 1 is for NCCL",
        .nodes = 8191,
        .old_nodes = 1023,
        .subs = 512,
        .old_subs = 32,
        .kind = 64,
        .old_text = "RCCL before 2.21 (ROCm 6.3) takes 1023 elements, of them 32 or 64 in one",
        .old_remedy = "nothing to do from RCCL 2.21 on",
        .nodes_remedy = "leave out what the job does not need, <xgmi> first"};
    return rccl ? &amd : &nccl;
}
