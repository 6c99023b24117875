libpvn_core_la_SOURCES += plugin/core/version.c plugin/core/version.h
libpvn_core_la_SOURCES += plugin/core/lane.h plugin/core/engine.h
libpvn_core_la_SOURCES += plugin/core/clock.h plugin/core/err.c plugin/core/err.h \
    plugin/core/hints.c plugin/core/hints.h plugin/core/log.c plugin/core/log.h \
    plugin/core/param.c plugin/core/param.h plugin/core/param_print.c plugin/core/param_table.c \
    plugin/core/param_value.c plugin/core/param_value.h plugin/core/result.c plugin/core/result.h
libpvn_core_la_SOURCES += plugin/core/lane.c plugin/core/engine.c plugin/core/engine_flush.c \
    plugin/core/engine_plan.c \
    plugin/core/engine_send.c plugin/core/engine_recv.c plugin/core/engine_match.c \
    plugin/core/engine_hot.h plugin/core/engine_priv.h
libpvn_core_la_SOURCES += plugin/core/fork.c plugin/core/fork.h plugin/core/poller.c plugin/core/poller.h \
    plugin/core/random.c plugin/core/transport.h plugin/core/wire.c plugin/core/wire.h
libpvn_core_la_SOURCES += plugin/core/bells.c plugin/core/bells.h
libpvn_core_la_SOURCES += plugin/core/addr.c plugin/core/addr.h
libpvn_core_la_SOURCES += plugin/core/cuda_abi.h plugin/core/cuda_shim.c plugin/core/cuda_shim.h \
    plugin/core/gpumem.c plugin/core/gpumem.h plugin/core/gpumem_policy.c
libpvn_core_la_SOURCES += plugin/core/ctrl.c plugin/core/ctrl.h plugin/core/handshake.c \
    plugin/core/handshake.h plugin/core/handshake_lanes.c plugin/core/handshake_priv.h plugin/core/handshake_steps.c \
    plugin/core/listener.c plugin/core/listener.h \
    plugin/core/sock.c plugin/core/sock.h
libpvn_core_la_SOURCES += plugin/core/comm.c plugin/core/comm.h plugin/core/comm_mr.c \
    plugin/core/comm_hot.h plugin/core/comm_priv.h plugin/core/comm_setup.c plugin/core/device.c plugin/core/device.h \
    plugin/core/plugin.c plugin/core/plugin.h
libpvn_core_la_SOURCES += plugin/core/comm_stats.c plugin/core/stat_layout.h \
    plugin/core/stats.c plugin/core/stats.h plugin/core/stats_dir.c plugin/core/stats_dir.h \
    plugin/core/stats_read.c plugin/core/stats_read.h
libpvn_core_la_SOURCES += plugin/core/memcache.c plugin/core/memcache.h
# The layout of the machine is the topology library's, which needs nothing but libc.
libpvn_core_la_SOURCES += plugin/core/layout.c plugin/core/layout.h
libpvn_core_la_LIBADD = libpvntopo.la
