/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as an NCCL topology file. They pass the reader, the linter, the graph,
 * the pairing, the verdicts and the writer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "topo/nccl/gdr.h"
#include "topo/nccl/nccl_xml.h"
#include "topo/nccl/pair.h"

static void use_pairs(struct pvn_topo_ntree *tree)
{
    struct pvn_topo_pairs *pairs = NULL;
    char text[700];
    int *group = calloc((size_t)tree->n_nets + 1, sizeof(*group));
    fuzz_require(group != NULL && pvn_topo_pairs_of_tree(NULL, NULL, tree, &pairs) == 0,
                 "a graph can be paired");
    for (int g = 0; g < pairs->n; g++) {
        struct pvn_topo_gdr gdr;
        pvn_topo_pairs_line(pairs, g, text, sizeof(text));
        for (int n = 0; n < tree->n_nets && n < 4; n++)
            pvn_topo_gdr_judge(pairs, g, n, &gdr);
    }
    fuzz_require(pvn_topo_pairs_fusion(pairs, PVN_TOPO_FUSION_MAX, group, text, sizeof(text)) == 0,
                 "and its nets grouped");
    pvn_topo_pairs_cross_nic(pairs, text, sizeof(text));
    pvn_topo_pairs_free(pairs);
    free(group);
}

static void write_again(const struct pvn_topo_ndoc *doc)
{
    const struct pvn_topo_ndoc_node *bad;
    struct pvn_topo_xml_error err;
    struct pvn_topo_ndoc *again = NULL;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    fuzz_require(out != NULL, "memory");
    int written = pvn_topo_ndoc_write(doc, out, &bad);
    fclose(out);
    /* NCCL takes "<" and "&" literally, but XML does not. Such a value cannot be written and
     * read back. */
    if (written == 0 && memchr(text, '&', len) == NULL && strstr(text, "=\"<") == NULL) {
        int code = pvn_topo_nccl_xml_parse(text, len, &again, &err);
        if (code == 0)
            pvn_topo_ndoc_free(again);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pvn_topo_ndoc *doc = NULL;
    struct pvn_topo_ntree *tree = NULL;
    struct pvn_topo_xml_error err;
    struct pvn_topo_lint lint;
    char why[256];
    if (size > 65536)
        return 0;
    if (pvn_topo_nccl_lint((const char *)data, size, &lint) == 0)
        pvn_topo_lint_free(&lint);
    if (pvn_topo_nccl_xml_parse((const char *)data, size, &doc, &err) < 0) {
        fuzz_require(doc == NULL && err.text[0], "a refusal has its reason and leaves nothing");
        return 0;
    }
    write_again(doc);
    /* The graph's time is cubic in the number of devices. 200 elements are enough for each case. */
    if (doc->n_nodes <= 200 && pvn_topo_ndoc_complete(doc) == 0 &&
        pvn_topo_ntree_new(doc, NULL, &tree, why, sizeof(why)) == 0) {
        use_pairs(tree);
        pvn_topo_ntree_free(tree);
    }
    pvn_topo_ndoc_free(doc);
    return 0;
}
