/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo diff: compares two machines, two NCCL files, or one of each, by the documents that NCCL
 * makes of them. */
#include "topo/tool/show/show.h"

#include <jansson.h>
#include <string.h>

#include "topo/tool/base/json.h"
#include "topo/tool/load/load.h"

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

/* Reports a difference: '-' only in a, '+' only in b, '~' different in both. */
static void say(struct diff *d, char sign, const char *text)
{
    static const char *const kinds[] = {"removed", "added", "changed"};
    const char *shade = sign == '-' ? d->t->red : sign == '+' ? d->t->green : d->t->yellow;
    d->found++;
    if (d->list) {
        json_t *o = json_object();
        json_object_set_new(o, "kind", json_string(kinds[sign == '-' ? 0 : sign == '+' ? 1 : 2]));
        json_object_set_new(o, "text", json_text(text));
        json_array_append_new(d->list, o);
        return;
    }
    fprintf(d->t->out, "%s%c%s ", shade, sign, d->t->off);
    tool_wrap(d->t, 2, 4, text);
}

/* The key of a node on both sides: its bus id, NUMA number, or name. */
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
    /* A GPU's key is its PCI function, with its number if several ranks share it. */
    if (pvn_topo_ndoc_is(node, "gpu") && node->parent) {
        const char *busid = pvn_topo_ndoc_get(node->parent, "busid");
        const char *dev = pvn_topo_ndoc_get(node, "dev");
        int gpus = 0;
        for (int i = 0; i < node->parent->n_subs; i++)
            gpus += pvn_topo_ndoc_is(node->parent->subs[i], "gpu");
        if (busid)
            snprintf(buf, len, "gpu %s%s%s", busid, gpus > 1 && dev ? " number " : "",
                     gpus > 1 && dev ? dev : "");
    }
}

/* The nearest element above that has a key. */
static void place_of(const struct pvn_topo_ndoc_node *node, char *buf, size_t len)
{
    buf[0] = '\0';
    for (node = node->parent; node && buf[0] == '\0'; node = node->parent)
        key_of(node, buf, len);
}

static const struct pvn_topo_ndoc_node *find_by_key(const struct pvn_topo_ndoc *doc,
                                                    const char *key)
{
    char other[320];
    for (int i = 0; i < doc->n_nodes; i++) {
        key_of(doc->nodes[i], other, sizeof(other));
        if (strcmp(other, key) == 0)
            return doc->nodes[i];
    }
    return NULL;
}

/* False for nodes that trimming or a topology file's rules removed: they are not part of the
 * machine. */
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

/* True for attributes of this run, not of the machine. */
static bool of_the_run(const char *name)
{
    return strcmp(name, "host_hash") == 0 || strcmp(name, "keep") == 0 || strcmp(name, "rank") == 0;
}

/* Reports the attributes that only one side states, in one line. */
static void say_missing(struct diff *d, const char *key, const struct pvn_topo_ndoc_node *has,
                        const struct pvn_topo_ndoc_node *lacks, const char *where)
{
    char text[700] = "";
    size_t used = 0;
    for (int i = 0; i < has->n_attrs && used < sizeof(text) - 1; i++) {
        const char *name = has->attrs[i].key;
        if (of_the_run(name) || pvn_topo_ndoc_get(lacks, name))
            continue;
        int n = used == 0 ? snprintf(text, sizeof(text), "%.320s: stated only in %.160s: %s \"%s\"",
                                     key, where, name, has->attrs[i].value)
                          : snprintf(text + used, sizeof(text) - used, ", %s \"%s\"", name,
                                     has->attrs[i].value);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used > 0)
        say(d, '~', text);
}

static void compare_attrs(struct diff *d, const char *key, const struct pvn_topo_ndoc_node *a,
                          const struct pvn_topo_ndoc_node *b)
{
    char text[700];
    for (int i = 0; i < a->n_attrs; i++) {
        const char *name = a->attrs[i].key, *theirs = pvn_topo_ndoc_get(b, name);
        if (of_the_run(name) || !theirs || strcmp(a->attrs[i].value, theirs) == 0)
            continue;
        snprintf(text, sizeof(text), "%s: %s \"%s\" -> \"%s\"", key, name, a->attrs[i].value,
                 theirs);
        say(d, '~', text);
    }
    say_missing(d, key, a, b, "the first");
    say_missing(d, key, b, a, "the second");
}

static const char *target_of(const struct pvn_topo_ndoc_node *link)
{
    const char *target = pvn_topo_ndoc_get(link, "target");
    return target && target[0] ? target : "a switch";
}

/* Counts the links of one kind ("nvlink", "c2c", "xgmi") below a GPU, to one target or (NULL) to
 * all. A count is an int in NCCL, so the sum fits for any file. */
static long count_links(const struct pvn_topo_ndoc_node *gpu, const char *kind, const char *target)
{
    long n = 0;
    for (int i = 0; i < gpu->n_subs; i++)
        if (pvn_topo_ndoc_is(gpu->subs[i], kind) &&
            (!target || strcmp(target_of(gpu->subs[i]), target) == 0))
            n += (int)pvn_topo_ndoc_get_int(gpu->subs[i], "count", 1);
    return n;
}

/* Lists the targets of a's links whose number differs in b; with `lacking`, those that a lacks. */
static void list_targets(char *text, size_t len, const struct pvn_topo_ndoc_node *a,
                         const struct pvn_topo_ndoc_node *b, const char *kind, bool lacking)
{
    for (int i = 0; i < a->n_subs; i++) {
        size_t used = strlen(text);
        if (!pvn_topo_ndoc_is(a->subs[i], kind))
            continue;
        const char *target = target_of(a->subs[i]);
        long mine = count_links(a, kind, target), theirs = count_links(b, kind, target);
        bool repeated = false;
        for (int j = 0; j < i; j++)
            repeated |=
                pvn_topo_ndoc_is(a->subs[j], kind) && strcmp(target_of(a->subs[j]), target) == 0;
        if (mine == theirs || repeated || (lacking && theirs != 0))
            continue;
        snprintf(text + used, len - used, "; to %.40s %ld -> %ld", target, lacking ? theirs : mine,
                 lacking ? mine : theirs);
    }
}

static void compare_links(struct diff *d, const char *key, const struct pvn_topo_ndoc_node *a,
                          const struct pvn_topo_ndoc_node *b)
{
    static const struct {
        const char *element, *words;
    } kinds[] = {{"nvlink", "NVLinks"}, {"c2c", "C2C links"}, {"xgmi", "XGMI links"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char text[700], targets[500] = "";
        list_targets(targets, sizeof(targets), a, b, kinds[i].element, false);
        list_targets(targets, sizeof(targets), b, a, kinds[i].element, true);
        if (!targets[0])
            continue;
        snprintf(text, sizeof(text), "%.100s: %s %ld -> %ld%s", key, kinds[i].words,
                 count_links(a, kinds[i].element, NULL), count_links(b, kinds[i].element, NULL),
                 targets);
        say(d, '~', text);
    }
}

/* True for a net that the document has before: NCCL lists one without a PCI path below each NUMA
 * node with GPUs, and the first of these is its place. */
static bool is_copy(const struct pvn_topo_ndoc *doc, int at, const char *key)
{
    char other[320];
    for (int i = 0; pvn_topo_ndoc_is(doc->nodes[at], "net") && i < at; i++) {
        key_of(doc->nodes[i], other, sizeof(other));
        if (strcmp(other, key) == 0 && attached(doc->nodes[i]))
            return true;
    }
    return false;
}

static void compare_docs(struct diff *d)
{
    const struct pvn_topo_ndoc *a = d->a->tool.tree->doc, *b = d->b->tool.tree->doc;
    char key[320], place_a[320], place_b[320], text[1100];
    for (int i = 0; i < a->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *mine = a->nodes[i];
        key_of(mine, key, sizeof(key));
        if (key[0] == '\0' || !attached(mine) || is_copy(a, i, key))
            continue;
        const struct pvn_topo_ndoc_node *theirs = find_by_key(b, key);
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
        if (pvn_topo_ndoc_is(mine, "gpu"))
            compare_links(d, key, mine, theirs);
    }
    for (int i = 0; i < b->n_nodes; i++) {
        key_of(b->nodes[i], key, sizeof(key));
        if (key[0] == '\0' || !attached(b->nodes[i]) || is_copy(b, i, key))
            continue;
        const struct pvn_topo_ndoc_node *mine = find_by_key(a, key);
        if (!mine || !attached(mine)) {
            place_of(b->nodes[i], place_b, sizeof(place_b));
            snprintf(text, sizeof(text), "%s%s%s", key, place_b[0] ? " below " : "", place_b);
            say(d, '+', text);
        }
    }
}

static int same_net(const struct side *b, const char *name)
{
    for (int n = 0; n < b->tool.tree->n_nets; n++)
        if (strcmp(tool_net(&b->tool, n)->net.name, name) == 0)
            return n;
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

static void compare_gpu_paths(struct diff *d)
{
    const struct pvn_topo_ntree *a = d->a->tool.tree, *b = d->b->tool.tree;
    char text[400];
    for (int g = 0; g < a->n_gpus; g++) {
        const char *from = tool_gpu(&d->a->tool, g)->busid;
        int other_g = pvn_topo_pairs_find_gpu(d->b->tool.pairs, from);
        for (int h = g + 1; other_g >= 0 && h < a->n_gpus; h++) {
            const char *to = tool_gpu(&d->a->tool, h)->busid;
            int other_h = pvn_topo_pairs_find_gpu(d->b->tool.pairs, to);
            if (other_h < 0 || strcmp(from, to) == 0)
                continue;
            const struct pvn_topo_npath_info *p = pvn_topo_ntree_gpu_gpu(a, g, h);
            const struct pvn_topo_npath_info *q = pvn_topo_ntree_gpu_gpu(b, other_g, other_h);
            if (p->type == q->type && p->bw == q->bw)
                continue;
            snprintf(text, sizeof(text), "path %s - %s: %s %.1f GB/s -> %s %.1f GB/s", from, to,
                     pvn_topo_npath_name(p->type), p->bw, pvn_topo_npath_name(q->type), q->bw);
            say(d, '~', text);
        }
    }
}

static int load_side(struct side *s, const struct tool *t, const char *root)
{
    s->tool = *t;
    s->tool.root = s->name = root;
    s->tool.compares = true;
    int status = tool_load(&s->tool);
    if (status == TOOL_OK)
        tool_report_notes(root, s->tool.topo);
    return status;
}

static bool unread(const struct diff *d)
{
    return tool_devices_status(&d->a->tool) != TOOL_OK ||
           tool_devices_status(&d->b->tool) != TOOL_OK;
}

static int compare(struct diff *d)
{
    const struct tool *t = d->t;
    const char *b = strcmp(d->b->name, "/") == 0 ? "this machine" : d->b->name;
    char shown[2][256];
    if (t->json)
        d->list = json_array();
    else
        fprintf(t->out, "%s--- %s%s\n%s+++ %s%s\n", t->red,
                tool_escape(d->a->name, shown[0], sizeof(shown[0])), t->off, t->green,
                tool_escape(b, shown[1], sizeof(shown[1])), t->off);
    compare_docs(d);
    compare_gpu_paths(d);
    compare_pairs(d);
    if (t->json && json_diff(t, d->a->name, b, d->list) != TOOL_OK)
        return TOOL_INPUT;
    if (!t->json && d->found)
        fprintf(t->out, "%d difference%s\n", d->found, d->found == 1 ? "" : "s");
    else if (!t->json)
        fprintf(t->out, "no difference%s\n", unread(d) ? " in what could be read" : "");
    /* Parts that could not be listed may differ. */
    return unread(d) ? TOOL_INPUT : d->found ? TOOL_FOUND : TOOL_OK;
}

int cmd_diff(struct tool *t, int argc, char **argv)
{
    struct side a = {0}, b = {0};
    struct diff d = {.t = t, .a = &a, .b = &b};
    if (argc < 1 || argc > 2) {
        tool_error("diff needs two machines or NCCL files, or one to compare with this machine: "
                   "pvn-topo diff A [B]");
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
