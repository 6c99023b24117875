/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: the library's checks on the pairs that matter, and whether NCCL can load the
 * plugin. */
#include "topo/tool/load/counters.h"
#include "topo/tool/check/facts.h"
#include "topo/tool/stat/stat_look.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "plugin/base/nccl_vars.h"
#include "topo/tool/base/json.h"
#include "topo/tool/check/check.h"
#include "topo/tool/check/key_file.h"
#include "topo/tool/check/plugin_place.h"
#include "topo/tool/check/start.h"
#include "topo/tool/load/load.h"
#include "topo/tool/show/show.h"

extern char **environ;

/* Subjects named in one row; the others are counted. */
#define NAMED 3

static const char *shade(const struct tool *t, enum pvn_topo_level level)
{
    switch (level) {
    case PVN_TOPO_LEVEL_OK:
        return t->green;
    case PVN_TOPO_LEVEL_FAIL:
        return t->red;
    default:
        return t->yellow;
    }
}

static bool alike(const struct pvn_topo_check *a, const struct pvn_topo_check *b)
{
    return a->level == b->level && strcmp(a->id, b->id) == 0 && strcmp(a->text, b->text) == 0 &&
           strcmp(a->remedy, b->remedy) == 0;
}

/* Prints one row for all checks with the same text. */
static void print_row(const struct tool *t, const struct pvn_topo_checks *checks, int first)
{
    const struct pvn_topo_check *c = &checks->rows[first];
    char text[1024] = "";
    int n = 0;
    for (int i = first; i < checks->n; i++) {
        size_t used = strlen(text);
        if (!alike(&checks->rows[i], c))
            continue;
        if (n++ < NAMED)
            snprintf(text + used, sizeof(text) - used, "%s%s", used ? ", " : "",
                     checks->rows[i].subject);
    }
    size_t used = strlen(text);
    if (n > NAMED)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " and %d more", n - NAMED);
    snprintf(text + used, sizeof(text) - used, "%s%s", used ? ": " : "", c->text);
    fprintf(t->out, "%s%-7s%s %-16s ", shade(t, c->level), pvn_topo_level_name(c->level), t->off,
            c->id);
    tool_wrap(t, 25, 25, text);
    if (c->remedy[0] && c->level != PVN_TOPO_LEVEL_OK) {
        fprintf(t->out, "%25s%s-> ", "", t->bold);
        tool_wrap(t, 28, 28, c->remedy);
        fputs(t->off, t->out);
    }
}

/* Without --all, prints one line per kind of check that is OK. */
static void print_ok(const struct tool *t, const struct pvn_topo_checks *checks)
{
    fprintf(t->out, "%sOK%s      ", t->green, t->off);
    char text[1024] = "";
    for (int i = 0; i < checks->n; i++) {
        const struct pvn_topo_check *c = &checks->rows[i];
        bool first = c->level == PVN_TOPO_LEVEL_OK;
        int n = 0;
        for (int j = 0; first && j < checks->n; j++) {
            bool same = checks->rows[j].level == PVN_TOPO_LEVEL_OK &&
                        strcmp(checks->rows[j].id, c->id) == 0;
            first = !(same && j < i);
            n += same;
        }
        size_t used = strlen(text);
        if (first)
            snprintf(text + used, sizeof(text) - used, "%s%s (%d)", used ? ", " : "", c->id, n);
    }
    tool_wrap(t, 8, 8, text[0] ? text : "nothing");
}

static void print_checks(const struct tool *t, const struct pvn_topo_checks *checks)
{
    static const enum pvn_topo_level order[] = {PVN_TOPO_LEVEL_FAIL, PVN_TOPO_LEVEL_WARN,
                                                PVN_TOPO_LEVEL_UNKNOWN, PVN_TOPO_LEVEL_OK};
    int count[4] = {0};
    for (int i = 0; i < checks->n; i++)
        count[checks->rows[i].level]++;
    for (size_t o = 0; o < sizeof(order) / sizeof(order[0]); o++) {
        if (order[o] == PVN_TOPO_LEVEL_OK && !t->all) {
            print_ok(t, checks);
            continue;
        }
        for (int i = 0; i < checks->n; i++) {
            bool done = checks->rows[i].level != order[o];
            for (int j = 0; !done && j < i; j++)
                done = alike(&checks->rows[j], &checks->rows[i]);
            if (!done)
                print_row(t, checks, i);
        }
    }
    fprintf(t->out, "\n%d failed, %d to look at, %d not readable, %d ok%s\n",
            count[PVN_TOPO_LEVEL_FAIL], count[PVN_TOPO_LEVEL_WARN], count[PVN_TOPO_LEVEL_UNKNOWN],
            count[PVN_TOPO_LEVEL_OK], t->all ? "" : " (--all lists them)");
}

/* Lists the pairs that matter: NCCL's choice, and our advice if it differs. */
static int list_pairs(const struct tool *t, struct pvn_topo_check_pair *list)
{
    int n = 0;
    for (int g = 0; g < t->pairs->n; g++) {
        const struct pvn_topo_pair *p = &t->pairs->list[g];
        int nets[2] = {p->n_nccl ? p->nccl[0] : -1, p->advice};
        for (int i = 0; i < 2; i++) {
            int nic = nets[i] >= 0 ? pvn_topo_pairs_net_pci(t->pairs, nets[i]) : -1;
            int gpu = pvn_topo_pairs_gpu_pci(t->pairs, g);
            if (nic >= 0 && gpu >= 0 && (i == 0 || nets[0] != nets[1]))
                list[n++] = (struct pvn_topo_check_pair){.gpu = gpu, .nic = nic};
        }
    }
    return n;
}

/* The network that NCCL uses. NCCL takes the first one whose name equals NCCL_NET, in any case, and
 * fails without one. An empty value is a name that none has. */
struct network {
    const char *chosen; /* NCCL_NET, NULL: not set */
    char shown[64];     /* `chosen`, escaped for people */
    bool found;         /* a plugin has this name */
    char names[128];    /* of the plugins */
};

static int add_loaded(struct pvn_topo_checks *checks, struct network *net, const char *file,
                      const char *name, const char *versions)
{
    char text[384];
    bool taken = !net->chosen || strcasecmp(net->chosen, name) == 0;
    size_t used = strlen(net->names);
    net->found |= net->chosen && taken;
    snprintf(net->names + used, sizeof(net->names) - used, "%s%.60s", used ? ", " : "", name);
    snprintf(text, sizeof(text), "it can be loaded and exports %s%s%s%s", versions,
             taken ? "" : ", but NCCL leaves it out: NCCL_NET=", taken ? "" : net->shown,
             taken ? "" : " is not its name");
    return pvn_topo_checks_add(checks, "plugin", taken ? PVN_TOPO_LEVEL_OK : PVN_TOPO_LEVEL_WARN,
                               file, text, taken ? "" : "NCCL_NET=pvrdma, or unset NCCL_NET");
}

/* NCCL splits NCCL_NET_PLUGIN at commas and keeps so many bytes of each name. */
enum { NCCL_PLUGIN_BYTES = 254 };

/* Adds a row for a plugin that was not loaded. why: dlerror's text. If the loader did not find the
 * file, the row names the place where pip or an archive has put it. */
static int add_not_loaded(struct pvn_topo_checks *checks, const char *file, const char *why)
{
    const char *found = " cannot open shared object file: No such file or directory";
    char dir[PATH_MAX], text[2 * PATH_MAX], remedy[4 * PATH_MAX];
    const char *said = strncmp(why, file, strlen(file)) == 0 ? why + strlen(file) : "";
    snprintf(text, sizeof(text), "cannot be loaded: %.1000s", why);
    if (said[0] != ':' || strcmp(said + 1, found) != 0 || strchr(file, '/') ||
        !tool_plugin_place(file, dir, sizeof(dir)))
        return pvn_topo_checks_add(
            checks, "plugin", PVN_TOPO_LEVEL_WARN, file, text,
            "install it where the loader looks (ldconfig, LD_LIBRARY_PATH), or name the file in "
            "NCCL_NET_PLUGIN");
    snprintf(text, sizeof(text), "cannot be loaded: the loader does not look in %s, where it lies",
             dir);
    if (strchr(dir, ',') || strlen(dir) + 1 + strlen(file) > NCCL_PLUGIN_BYTES)
        snprintf(remedy, sizeof(remedy), "for every rank, LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH",
                 dir);
    else
        snprintf(remedy, sizeof(remedy),
                 "for every rank, NCCL_NET_PLUGIN=%s/%.200s (NCCL 2.21.5 and later), or "
                 "LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH",
                 dir, file, dir);
    return pvn_topo_checks_add(checks, "plugin", PVN_TOPO_LEVEL_WARN, file, text, remedy);
}

static int check_plugin_file(struct pvn_topo_checks *checks, struct network *net, const char *file)
{
    char versions[128] = "", name[64] = "";
    void *lib = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (!lib)
        return add_not_loaded(checks, file, dlerror());
    for (int v = 4; v <= 12; v++) {
        char symbol[32];
        size_t used = strlen(versions);
        snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
        const char *const *table = dlsym(lib, symbol);
        if (!table)
            continue;
        snprintf(versions + used, sizeof(versions) - used, "%sv%d", used ? " " : "", v);
        /* All versions of the table begin with the name. */
        snprintf(name, sizeof(name), "%s", *table ? *table : "");
    }
    dlclose(lib);
    if (versions[0] == '\0')
        return pvn_topo_checks_add(checks, "plugin", PVN_TOPO_LEVEL_FAIL, file,
                                   "it can be loaded but exports none of ncclNetPlugin_v4 to _v12",
                                   "this is not an NCCL net plugin: correct NCCL_NET_PLUGIN");
    return add_loaded(checks, net, file, name, versions);
}

/* Reports NCCL_NET if no plugin that can be loaded has that name. */
static int check_network(struct pvn_topo_checks *checks, const struct network *net)
{
    char text[384];
    if (!net->chosen || net->found)
        return 0;
    bool own = strcasecmp(net->chosen, "IB") == 0 || strcasecmp(net->chosen, "Socket") == 0;
    if (own)
        snprintf(text, sizeof(text),
                 "%s is NCCL's own transport, which it takes whatever plugin there is", net->shown);
    else
        snprintf(text, sizeof(text),
                 "\"%s\" is the name of no network (plugins: %s; NCCL's own: IB, Socket), so NCCL "
                 "ends with \"Failed to initialize any NET plugin\"",
                 net->shown, net->names[0] ? net->names : "none can be loaded");
    return pvn_topo_checks_add(checks, "network", own ? PVN_TOPO_LEVEL_WARN : PVN_TOPO_LEVEL_FAIL,
                               "NCCL_NET", text,
                               net->names[0] ? "NCCL_NET=pvrdma, or unset NCCL_NET"
                                             : "make the plugin loadable (above); without it "
                                               "unset NCCL_NET");
}

static int check_plugins(const struct tool *t, struct pvn_topo_checks *checks)
{
    struct network net = {.chosen = t->ignore_env ? NULL : getenv("NCCL_NET")};
    char file[512];
    int n = 0, err = 0;
    if (net.chosen)
        tool_escape(net.chosen, net.shown, sizeof(net.shown));
    for (; err == 0 && tool_plugin_file(t, n, file, sizeof(file)); n++)
        err = check_plugin_file(checks, &net, file);
    if (err == 0 && n == 0)
        err = pvn_topo_checks_add(checks, "plugin", PVN_TOPO_LEVEL_WARN, "NCCL_NET_PLUGIN",
                                  "it names no plugin, so NCCL loads none",
                                  "NCCL_NET_PLUGIN=pvrdma for nccl-net-pvrdma");
    return err == 0 ? check_network(checks, &net) : err;
}

/* Adds a row for errors that `pvn-topo lint` finds in the file of NCCL_TOPO_FILE: its reader stops
 * there, or ignores the file. */
static int check_topo_file_errors(const struct tool *t, struct pvn_topo_checks *checks)
{
    const char *file = t->ignore_env ? NULL : getenv("NCCL_TOPO_FILE");
    const struct pvn_topo_lint_finding *first = NULL;
    struct pvn_topo_lint lint;
    struct pvn_topo_input in;
    char text[512], shown[384], more[64] = "";
    int n = 0, err = 0;
    if (!t->topo->live || !t->file || t->topo_file || !file || tool_read(t, file, &in) != TOOL_OK)
        return 0;
    if (pvn_topo_nccl_lint(in.data, in.len, &lint) < 0) {
        pvn_topo_input_free(&in);
        return -ENOMEM;
    }
    for (int i = 0; i < lint.n; i++)
        if (lint.findings[i].level == PVN_TOPO_LINT_ERROR && n++ == 0)
            first = &lint.findings[i];
    if (n > 1)
        snprintf(more, sizeof(more), "; and %d more error%s", n - 1, n == 2 ? "" : "s");
    if (first) {
        snprintf(text, sizeof(text), "line %d: %s%s (pvn-topo lint lists all)", first->line,
                 first->what, more);
        err = pvn_topo_checks_add(checks, "topo-file", PVN_TOPO_LEVEL_FAIL, "NCCL_TOPO_FILE",
                                  tool_escape(text, shown, sizeof(shown)), first->remedy);
    }
    pvn_topo_lint_free(&lint);
    pvn_topo_input_free(&in);
    return err;
}

static int check_topo_file(const struct tool *t, struct pvn_topo_checks *checks)
{
    char text[384], name[256];
    if (!t->file_missing)
        return check_topo_file_errors(t, checks);
    snprintf(text, sizeof(text), "%s: %s; NCCL goes on without it",
             tool_escape(t->file_missing, name, sizeof(name)), strerror(t->file_errno));
    return pvn_topo_checks_add(checks, "topo-file", PVN_TOPO_LEVEL_WARN, "NCCL_TOPO_FILE", text,
                               "correct the path or unset the variable");
}

static int check_rdma_is_off(const struct tool *t, struct pvn_topo_checks *checks)
{
    if (!tool_rdma_is_off(t) || !t->topo || t->topo->nrdmas == 0)
        return 0;
    return pvn_topo_checks_add(checks, "network", PVN_TOPO_LEVEL_WARN, "NCCL_IB_DISABLE",
                               "RDMA is off: the plugin uses TCP, as NCCL itself would",
                               "unset it, or NCCL_PVRDMA_TRANSPORT=auto for the plugin alone");
}

/* Reports NCCL variables that the user has set for an effect that the plugin does not have. */
static int check_missed(const struct tool *t, struct pvn_topo_checks *checks)
{
    const struct pvn_nccl_var *var;
    char name[PVN_NCCL_VAR_LEN], text[128], shown[64];
    const char *value;
    int err = 0;
    for (char **entry = environ; err == 0 && !t->ignore_env && *entry; entry++) {
        var = pvn_nccl_var_of_entry(*entry, name, &value);
        if (!var || !pvn_nccl_var_is_missed(var, value))
            continue;
        snprintf(text, sizeof(text), "%s has no effect on the plugin",
                 tool_escape(value, shown, sizeof(shown)));
        err = pvn_topo_checks_add(checks, "variable", PVN_TOPO_LEVEL_WARN, name, text, var->text);
    }
    return err;
}

/* The node with the slowest upward link on the path from `node` to `top` (-1: to the CPU). */
static int slowest_up(const struct pvn_topo_ntree *tree, int node, int top, int best)
{
    for (; node >= 0 && node != top && tree->nodes[node].up >= 0; node = tree->nodes[node].up) {
        const struct pvn_topo_nnode *n = &tree->nodes[node];
        if (n->kind != PVN_TOPO_NN_NET && n->kind != PVN_TOPO_NN_GPU && n->up_bw > 0 &&
            (best < 0 || n->up_bw < tree->nodes[best].up_bw))
            best = node;
    }
    return best;
}

/* The slowest PCIe link on the path between the two; -1 if there is none. */
static int slowest_link(const struct tool *t, int gpu, int net)
{
    const struct pvn_topo_ntree *tree = t->tree;
    int hops[256], n = pvn_topo_ntree_hops(tree, gpu, net, hops, 256), top = -1;
    for (int i = 1; i + 1 < n && top < 0; i++)
        if (tree->nodes[hops[i - 1]].up == hops[i] && tree->nodes[hops[i + 1]].up == hops[i])
            top = hops[i];
    if (pvn_topo_ntree_route(tree, gpu, net)->detour)
        top = -1;
    return slowest_up(tree, tree->nets[net], top, slowest_up(tree, tree->gpus[gpu], top, -1));
}

/* Reports a path that a slow link limits in NCCL's model. Emulated ports and onboard devices state
 * 2.5 GT/s x1 whatever their real link is. */
static int check_model(const struct tool *t, struct pvn_topo_checks *checks)
{
    int err = 0;
    for (int g = 0; g < t->pairs->n && err == 0; g++) {
        const struct pvn_topo_pair *p = &t->pairs->list[g];
        int slow = p->n_nccl ? slowest_link(t, g, p->nccl[0]) : -1;
        char subject[64], text[128], label[16];
        if (slow < 0 || t->tree->nodes[slow].up_bw >= 1.0f)
            continue;
        snprintf(subject, sizeof(subject), "%s - %.40s", tool_gpu_label(t, g, label),
                 tool_net(t, p->nccl[0])->net.name);
        snprintf(text, sizeof(text), "the link of %.20s caps the path at %.2f GB/s in NCCL's model",
                 t->tree->nodes[slow].busid, t->tree->nodes[slow].up_bw);
        err = pvn_topo_checks_add(
            checks, "slow-path", PVN_TOPO_LEVEL_WARN, subject, text,
            pvn_topo_is_guest(t->topo)
                ? "an emulated port reports 2.5 GT/s x1 whatever its real link is: set x-speed and "
                  "x-width of QEMU's ports, or write the links of the hardware into NCCL_TOPO_FILE"
                : "reseat the card or use another slot; a device on the board may report this "
                  "whatever its real link is: write the real one into NCCL_TOPO_FILE");
    }
    return err;
}

/* Prints the checks of one rank in one piece, headed by its host, because the copies that srun or
 * mpirun started share a terminal. */
static void print_checks_of_rank(struct tool *t, struct pvn_topo_checks *checks)
{
    char host[65] = "";
    if (t->topo->live && stat_meets()) {
        setvbuf(t->out, NULL, _IOFBF, 1 << 16);
        gethostname(host, sizeof(host) - 1);
        fprintf(t->out, "%shost %s%s (pvn-topo check --hosts compares hosts)\n", t->bold, host,
                t->off);
    }
    print_checks(t, checks);
    if (host[0])
        fputc('\n', t->out);
}

int cmd_check(struct tool *t, int argc, char **argv)
{
    struct pvn_topo_checks checks = {0};
    if (t->hosts || argc > 0)
        return tool_compare(t, argc, argv);
    t->with_counters = true;
    int status = tool_load(t);
    if (status == TOOL_OK)
        status = tool_need_machine(t, "check");
    if (status != TOOL_OK)
        return status;
    struct pvn_topo_check_pair *pairs = calloc(2 * (size_t)t->pairs->n + 1, sizeof(*pairs));
    int n = pairs ? list_pairs(t, pairs) : 0;
    int err = !pairs ? -1 : pvn_topo_run_checks(t->topo, n ? pairs : NULL, n, &checks);
    free(pairs);
    if (err == 0)
        err = check_topo_file(t, &checks);
    if (err == 0)
        err = check_rdma_is_off(t, &checks);
    if (err == 0)
        err = check_missed(t, &checks);
    if (err == 0)
        err = check_model(t, &checks);
    if (err == 0)
        err = tool_check_down(t, &checks);
    if (err == 0 && t->topo->live)
        err = tool_check_start(t, &checks);
    if (err == 0 && t->topo->live)
        err = check_plugins(t, &checks);
    if (err == 0 && t->topo->live)
        err = tool_check_key(t, &checks);
    if (err == 0)
        err = tool_check_counters(t, &checks);
    if (err < 0) {
        pvn_topo_checks_free(&checks);
        tool_error("%s", err == -EIO ? "nothing was checked" : "out of memory");
        return TOOL_INPUT;
    }
    if (t->json)
        status = json_check(t, &checks,
                            json_adapters(t->topo, t->looked_twice ? &t->look : NULL,
                                          t->looked_twice ? &t->look_again : &t->look),
                            json_facts(t));
    else
        print_checks_of_rank(t, &checks);
    if (t->json && tool_devices_status(t) != TOOL_OK)
        tool_report_notes(t->root, t->topo);
    if (!t->json)
        tool_print_remedies(t);
    if (!t->json)
        tool_print_counted(t);
    for (int i = 0; i < checks.n && status == TOOL_OK; i++)
        if (checks.rows[i].level == PVN_TOPO_LEVEL_FAIL)
            status = TOOL_FOUND;
    pvn_topo_checks_free(&checks);
    return tool_devices_status(t) != TOOL_OK ? TOOL_INPUT : status;
}
