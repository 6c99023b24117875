/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo diff: two machines, two NCCL files, or one of each, by what NCCL makes of them. */
#include "topo/tool/tool.h"

#include <jansson.h>
#include <string.h>

struct side {
    struct tool tool;
    const char *name;
};

struct diff {
    const struct tool *t;
    struct side *a, *b;
    int found;
    json_t *list; /* with --json, else NULL */
};

/* '-' only in a, '+' only in b, '~' in both but not alike. */
static void say(struct diff *d, char sign, const char *text)
{
    static const char *const kinds[] = {"removed", "added", "changed"};
    const char *shade = sign == '-' ? d->t->red : sign == '+' ? d->t->green : d->t->yellow;
    d->found++;
    if (d->list) {
        json_t *o = json_object();
        json_object_set_new(o, "kind", json_string(kinds[sign == '-' ? 0 : sign == '+' ? 1 : 2]));
        json_object_set_new(o, "text", json_string(text));
        json_array_append_new(d->list, o);
        return;
    }
    fprintf(d->t->out, "%s%c%s ", shade, sign, d->t->off);
    tool_wrap(d->t, 2, 4, text);
}

/* What a node is called on both sides: its bus id, NUMA number, or name. */
static void key_of(const struct pvn_topo_ndoc_node *node, char *buf, size_t len)
{
    static const struct {
        const char *element, *key, *words;
    } keys[] = {{"cpu", "numaid", "NUMA node"}, {"pci", "busid", "pci"}, {"net", "name", "net"}};
    buf[0] = '\0';
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *value = pvn_topo_ndoc_get(node, keys[i].key);
        if (pvn_topo_ndoc_is(node, keys[i].element) && value)
            snprintf(buf, len, "%s %s", keys[i].words, value);
    }
}

/* The nearest element above that has a name of its own. */
static void place_of(const struct pvn_topo_ndoc_node *node, char *buf, size_t len)
{
    buf[0] = '\0';
    for (node = node->parent; node && buf[0] == '\0'; node = node->parent)
        key_of(node, buf, len);
}

static const struct pvn_topo_ndoc_node *find(const struct pvn_topo_ndoc *doc, const char *key)
{
    char other[320];
    for (int i = 0; i < doc->n_nodes; i++) {
        key_of(doc->nodes[i], other, sizeof(other));
        if (strcmp(other, key) == 0)
            return doc->nodes[i];
    }
    return NULL;
}

/* Nodes that trimming or a topology file's rules cut off are not part of the machine. */
static bool attached(const struct pvn_topo_ndoc_node *node)
{
    for (; node->parent; node = node->parent) {
        bool child = false;
        for (int i = 0; i < node->parent->n_subs; i++)
            child |= node->parent->subs[i] == node;
        if (!child)
            return false;
    }
    return pvn_topo_ndoc_is(node, "system");
}

static void compare_attrs(struct diff *d, const char *key, const struct pvn_topo_ndoc_node *a,
                          const struct pvn_topo_ndoc_node *b)
{
    char text[700];
    for (int i = 0; i < a->n_attrs; i++) {
        const char *name = a->attrs[i].key, *theirs = pvn_topo_ndoc_get(b, name);
        /* Numbers of this run, not of the machine. */
        if (strcmp(name, "host_hash") == 0 || strcmp(name, "keep") == 0 || !theirs ||
            strcmp(a->attrs[i].value, theirs) == 0)
            continue;
        snprintf(text, sizeof(text), "%s: %s \"%s\" -> \"%s\"", key, name, a->attrs[i].value,
                 theirs);
        say(d, '~', text);
    }
}

static void compare_docs(struct diff *d)
{
    const struct pvn_topo_ndoc *a = d->a->tool.tree->doc, *b = d->b->tool.tree->doc;
    char key[320], place_a[320], place_b[320], text[1100];
    for (int i = 0; i < a->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *mine = a->nodes[i];
        key_of(mine, key, sizeof(key));
        if (key[0] == '\0' || !attached(mine))
            continue;
        const struct pvn_topo_ndoc_node *theirs = find(b, key);
        place_of(mine, place_a, sizeof(place_a));
        if (!theirs || !attached(theirs)) {
            snprintf(text, sizeof(text), "%s%s%s", key, place_a[0] ? " below " : "", place_a);
            say(d, '-', text);
            continue;
        }
        place_of(theirs, place_b, sizeof(place_b));
        if (strcmp(place_a, place_b) != 0) {
            snprintf(text, sizeof(text), "%s: below %s -> below %s", key, place_a, place_b);
            say(d, '~', text);
        }
        compare_attrs(d, key, mine, theirs);
    }
    for (int i = 0; i < b->n_nodes; i++) {
        key_of(b->nodes[i], key, sizeof(key));
        if (key[0] == '\0' || !attached(b->nodes[i]))
            continue;
        const struct pvn_topo_ndoc_node *mine = find(a, key);
        if (!mine || !attached(mine)) {
            place_of(b->nodes[i], place_b, sizeof(place_b));
            snprintf(text, sizeof(text), "%s%s%s", key, place_b[0] ? " below " : "", place_b);
            say(d, '+', text);
        }
    }
}

static int same_net(const struct side *b, const char *name)
{
    for (int n = 0; n < b->tool.tree->n_nets; n++) {
        if (strcmp(tool_net(&b->tool, n)->net.name, name) == 0)
            return n;
    }
    return -1;
}

static void compare_pairs(struct diff *d)
{
    const struct pvn_topo_ntree *a = d->a->tool.tree, *b = d->b->tool.tree;
    char text[400];
    for (int g = 0; g < a->n_gpus; g++) {
        const char *gpu = tool_gpu(&d->a->tool, g)->busid;
        int other = pvn_topo_pairs_find_gpu(d->b->tool.pairs, gpu);
        for (int n = 0; other >= 0 && n < a->n_nets; n++) {
            const char *net = tool_net(&d->a->tool, n)->net.name;
            int their_net = same_net(d->b, net);
            if (their_net < 0)
                continue;
            const struct pvn_topo_npath_info *p = pvn_topo_ntree_gpu_net(a, g, n);
            const struct pvn_topo_npath_info *q = pvn_topo_ntree_gpu_net(b, other, their_net);
            if (p->type == q->type && p->bw == q->bw)
                continue;
            snprintf(text, sizeof(text), "path %s - %s: %s %.1f GB/s -> %s %.1f GB/s", gpu, net,
                     pvn_topo_npath_name(p->type), p->bw, pvn_topo_npath_name(q->type), q->bw);
            say(d, '~', text);
        }
        const struct pvn_topo_pair *pa = &d->a->tool.pairs->list[g];
        const struct pvn_topo_pair *pb = other >= 0 ? &d->b->tool.pairs->list[other] : NULL;
        if (!pb || pa->n_nccl == 0 || pb->n_nccl == 0)
            continue;
        const char *na = tool_net(&d->a->tool, pa->nccl[0])->net.name;
        const char *nb = tool_net(&d->b->tool, pb->nccl[0])->net.name;
        if (strcmp(na, nb) != 0) {
            snprintf(text, sizeof(text), "choice of %s: NCCL takes %s -> %s", gpu, na, nb);
            say(d, '~', text);
        }
    }
}

static int load_side(struct side *s, const struct tool *t, const char *root)
{
    s->tool = *t;
    s->tool.root = s->name = root;
    return tool_load(&s->tool);
}

static int compare(struct diff *d)
{
    const struct tool *t = d->t;
    const char *b = strcmp(d->b->name, "/") == 0 ? "this machine" : d->b->name;
    if (t->json)
        d->list = json_array();
    else
        fprintf(t->out, "%s--- %s%s\n%s+++ %s%s\n", t->red, d->a->name, t->off, t->green, b,
                t->off);
    compare_docs(d);
    compare_pairs(d);
    if (t->json && json_diff(t, d->a->name, b, d->list) != TOOL_OK)
        return TOOL_INPUT;
    if (!t->json && d->found)
        fprintf(t->out, "%d difference%s\n", d->found, d->found == 1 ? "" : "s");
    else if (!t->json)
        fprintf(t->out, "no difference\n");
    return d->found ? TOOL_FOUND : TOOL_OK;
}

int cmd_diff(struct tool *t, int argc, char **argv)
{
    struct side a = {0}, b = {0};
    struct diff d = {.t = t, .a = &a, .b = &b};
    if (argc < 1 || argc > 2) {
        tool_error("diff wants two machines or NCCL files (or one, to compare with this machine)");
        return TOOL_USAGE;
    }
    int status = load_side(&a, t, argv[0]);
    if (status == TOOL_OK)
        status = load_side(&b, t, argc == 2 ? argv[1] : t->root);
    if (status == TOOL_OK)
        status = compare(&d);
    tool_unload(&a.tool);
    tool_unload(&b.tool);
    return status;
}
