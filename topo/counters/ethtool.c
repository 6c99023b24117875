/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a driver, as ethtool -S shows them. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topo/counters/counters.h"

enum {
    MOST = 65536, /* statistics of an interface: a NIC of many queues has some thousand */
    /* The kernel writes as many values as the driver has at that moment, whatever the size of the
     * buffer. Queues may have been added since the values were counted. */
    SPARE = 4096,
};

struct live {
    struct pvn_topo_ethtool ethtool;
    int fd;
};

static int call_kernel(void *ctx, const char *ifname, void *data)
{
    struct ifreq request = {.ifr_data = data};

    if (strlen(ifname) >= sizeof(request.ifr_name))
        return -ENODEV;
    strcpy(request.ifr_name, ifname);
    return ioctl(((const struct live *)ctx)->fd, SIOCETHTOOL, &request) == 0 ? 0 : -errno;
}

const struct pvn_topo_ethtool *pvn_topo_ethtool_open(void)
{
    struct live *live = calloc(1, sizeof(*live));

    if (!live)
        return NULL;
    live->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (live->fd < 0) {
        free(live);
        return NULL;
    }
    live->ethtool = (struct pvn_topo_ethtool){call_kernel, live};
    return &live->ethtool;
}

void pvn_topo_ethtool_close(const struct pvn_topo_ethtool *e)
{
    if (e) {
        struct live *live = e->ctx;

        close(live->fd);
        free(live);
    }
}

/* How many statistics the driver has, or negative errno. */
static int count_stats(const struct pvn_topo_ethtool *e, const char *ifname)
{
    union {
        struct ethtool_sset_info info;
        uint32_t words[sizeof(struct ethtool_sset_info) / sizeof(uint32_t) + 1];
    } sets = {.info = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ULL << ETH_SS_STATS}};
    int rc = e->call(e->ctx, ifname, &sets);
    uint32_t count = sets.info.data[0];

    if (rc != 0)
        return rc;
    if (sets.info.sset_mask == 0 || count == 0)
        return -EOPNOTSUPP;
    return count <= MOST ? (int)count : -E2BIG;
}

/* Copies a name, which may fill its field without a NUL. */
static void clean_name(const uint8_t *field, char *out)
{
    size_t n = strnlen((const char *)field, ETH_GSTRING_LEN), from = 0;

    while (from < n && field[from] == ' ')
        from++;
    while (n > from && field[n - 1] == ' ')
        n--;
    memcpy(out, field + from, n - from);
    out[n - from] = '\0';
}

int pvn_topo_ethtool_stats(const struct pvn_topo_ethtool *e, const char *ifname,
                           int (*each)(void *ctx, const char *name, uint64_t value), void *ctx)
{
    int n = count_stats(e, ifname), rc = n < 0 ? n : 0;
    struct ethtool_gstrings *names = NULL;
    struct ethtool_stats *values = NULL;

    if (rc != 0)
        return rc;
    names = calloc(1, sizeof(*names) + ((size_t)n + SPARE) * ETH_GSTRING_LEN);
    values = calloc(1, sizeof(*values) + ((size_t)n + SPARE) * sizeof(values->data[0]));
    if (!names || !values) {
        rc = -ENOMEM;
        goto out;
    }
    names->cmd = ETHTOOL_GSTRINGS;
    names->string_set = ETH_SS_STATS;
    names->len = (uint32_t)n;
    values->cmd = ETHTOOL_GSTATS;
    values->n_stats = (uint32_t)n;
    rc = e->call(e->ctx, ifname, names);
    rc = rc != 0 ? rc : e->call(e->ctx, ifname, values);
    if (rc == 0 && names->len != values->n_stats)
        rc = -EAGAIN; /* the number changed in between, so names and values do not match */
    for (int i = 0; rc == 0 && i < n && i < (int)values->n_stats; i++) {
        char name[ETH_GSTRING_LEN + 1];

        clean_name(names->data + (size_t)i * ETH_GSTRING_LEN, name);
        rc = each(ctx, name, values->data[i]);
    }
out:
    free(names);
    free(values);
    return rc;
}
