from inlaid.plugins import DeviceStatus
def probe(options):
    return DeviceStatus(True, f"{options.simulator} simulator")
