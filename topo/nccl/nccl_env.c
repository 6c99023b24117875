/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/nccl_tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *words;
} path_types[] = {
    [PVN_TOPO_NPATH_LOC] = {"LOC", "the same device"},
    [PVN_TOPO_NPATH_NVL] = {"NVL", "NVLink"},
    [PVN_TOPO_NPATH_NVB] = {"NVB", "NVLink through another GPU"},
    [PVN_TOPO_NPATH_C2C] = {"C2C", "NVLink-C2C to the CPU"},
    [PVN_TOPO_NPATH_PIX] = {"PIX", "one PCIe switch"},
    [PVN_TOPO_NPATH_PXB] = {"PXB", "several PCIe switches, not the CPU"},
    [PVN_TOPO_NPATH_P2C] = {"P2C", "NVLink-C2C to the CPU, then PCIe"},
    [PVN_TOPO_NPATH_PXN] = {"PXN", "NVLink to a GPU beside the NIC"},
    [PVN_TOPO_NPATH_PHB] = {"PHB", "the CPU's PCIe host bridges"},
    [PVN_TOPO_NPATH_SYS] = {"SYS", "the link between NUMA nodes"},
    [PVN_TOPO_NPATH_NET] = {"NET", "the network"},
    [PVN_TOPO_NPATH_DIS] = {"DIS", "nothing: not connected"},
};

const char *pvn_topo_npath_name(enum pvn_topo_npath type)
{
    return type <= PVN_TOPO_NPATH_DIS ? path_types[type].name : "?";
}

const char *pvn_topo_npath_words(enum pvn_topo_npath type)
{
    return type <= PVN_TOPO_NPATH_DIS ? path_types[type].words : "?";
}

/* Parses a level. Names are compared whole and in upper case; a text that starts with a digit has
 * the scale of NCCL before 2.5 (paths.cc ncclGetLevel). -1 if NCCL does not understand it and
 * continues as if it were unset. */
static int level(const char *text)
{
    static const int old_scale[] = {PVN_TOPO_NPATH_LOC, PVN_TOPO_NPATH_PIX, PVN_TOPO_NPATH_PXB,
                                    PVN_TOPO_NPATH_PHB, PVN_TOPO_NPATH_SYS, PVN_TOPO_NPATH_SYS};
    for (int i = 0; i <= PVN_TOPO_NPATH_SYS; i++)
        if (strcmp(text, path_types[i].name) == 0)
            return i;
    if (text[0] >= '0' && text[0] <= '9') {
        long old = strtol(text, NULL, 0);
        return old_scale[old > 5 || old < 0 ? 5 : old];
    }
    return -1;
}

static void note_bad(struct pvn_topo_nccl_env *env, const char *name, const char *text,
                     const char *use)
{
    if (env->bad[0] == '\0')
        snprintf(env->bad, sizeof(env->bad),
                 "%s=%.40s is not understood by NCCL, which goes on with %s", name, text, use);
}

static void load_level(struct pvn_topo_nccl_env *env, const char *name, const char *text,
                       int *value)
{
    if (!text)
        return;
    *value = level(text);
    if (*value < 0 && text[0] != '\0')
        note_bad(env, name, text, "its default (levels are LOC, NVL, PIX, PXB, PHB, SYS)");
}

typedef const char *(*look_up)(const char *name, void *user);

/* Reads a number as NCCL does (param.cc ncclLoadParam): an empty or out-of-range value counts as
 * unset. */
static int number(look_up get, void *user, const char *name, int fallback)
{
    const char *text = get(name, user);
    if (!text || text[0] == '\0')
        return fallback;
    errno = 0;
    long long value = strtoll(text, NULL, 0);
    return errno ? fallback : (int)value;
}

static void load_policy(struct pvn_topo_nccl_env *env, const char *text)
{
    if (!text)
        return;
    if (strcasecmp(text, "ALL") == 0) {
        env->netdevs = PVN_TOPO_NETDEVS_ALL;
    } else if (strncasecmp(text, "MAX:", 4) == 0 && atoi(text + 4) > 0) {
        env->netdevs = PVN_TOPO_NETDEVS_MAX;
        env->netdevs_max = atoi(text + 4);
    } else if (strcasecmp(text, "AUTO") != 0) {
        note_bad(env, "NCCL_NETDEVS_POLICY", text, "AUTO (it knows AUTO, ALL and MAX:n)");
    }
}

/* Matches prefixes in this order; anything unknown is LOC (topo.cc nicPathKvList). */
static void load_merge_level(struct pvn_topo_nccl_env *env, const char *text)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {
        {"LOC", PVN_TOPO_NPATH_LOC}, {"PORT", PVN_TOPO_MERGE_PORT}, {"PIX", PVN_TOPO_NPATH_PIX},
        {"PXB", PVN_TOPO_NPATH_PXB}, {"P2C", PVN_TOPO_NPATH_P2C},   {"PXN", PVN_TOPO_NPATH_PXN},
        {"PHB", PVN_TOPO_NPATH_PHB}, {"SYS", PVN_TOPO_NPATH_SYS},
    };
    if (!text)
        return;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strncmp(text, levels[i].name, strlen(levels[i].name)) == 0) {
            env->merge_level = levels[i].level;
            return;
        }
    }
    env->merge_level = PVN_TOPO_NPATH_LOC;
    note_bad(env, "NCCL_NET_MERGE_LEVEL", text, "LOC: no NICs are merged");
}

void pvn_topo_nccl_env_load(struct pvn_topo_nccl_env *env,
                            const char *(*get)(const char *name, void *user), void *user)
{
    *env = (struct pvn_topo_nccl_env){
        .p2p_level = -1,
        .gdr_level = -1,
        .gdr_read = -1,
        .gdr_c2c = true,
        .dmabuf = true,
        .pxn_c2c = true,
        .cross_nic = 2,
        .merge_level = PVN_TOPO_MERGE_PORT,
    };
    if (!get)
        return;

    const char *text = get("NCCL_P2P_DISABLE", user);
    if (text && strtol(text, NULL, 0) == 1)
        env->p2p_level = PVN_TOPO_NPATH_LOC;
    else
        load_level(env, "NCCL_P2P_LEVEL", get("NCCL_P2P_LEVEL", user), &env->p2p_level);
    load_level(env, "NCCL_NET_GDR_LEVEL", get("NCCL_NET_GDR_LEVEL", user), &env->gdr_level);
    int read = number(get, user, "NCCL_NET_GDR_READ", -1);
    env->gdr_read = read < 0 ? -1 : read != 0;
    env->gdr_c2c = number(get, user, "NCCL_NET_GDR_C2C", 1) != 0;
    env->gdr_mlopart = number(get, user, "NCCL_NET_GDR_MLOPART", 0) != 0;
    env->dmabuf = number(get, user, "NCCL_DMABUF_ENABLE", 1) != 0;
    env->pxn_disable = number(get, user, "NCCL_PXN_DISABLE", 0) == 1;
    env->pxn_c2c = number(get, user, "NCCL_PXN_C2C", 1) != 0;
    env->nvb_disable = number(get, user, "NCCL_NVB_DISABLE", 0) != 0;
    env->cross_nic = number(get, user, "NCCL_CROSS_NIC", 2);
    load_policy(env, get("NCCL_NETDEVS_POLICY", user));
    load_merge_level(env, get("NCCL_NET_MERGE_LEVEL", user));
    if ((text = get("NCCL_NET_MERGE_POLICY", user))) {
        if (strcasecmp(text, "RAIL") == 0)
            env->merge_policy = PVN_TOPO_MERGE_RAIL;
        else if (strcasecmp(text, "ALL") != 0)
            note_bad(env, "NCCL_NET_MERGE_POLICY", text, "ALL");
    }
    env->force_merge = get("NCCL_NET_FORCE_MERGE", user);
}
