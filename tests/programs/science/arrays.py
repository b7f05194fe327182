"""What notebooks do: HDF5, netCDF, torch; written, read back, appended to."""

import h5py
import netCDF4
import numpy
import torch

with h5py.File("arrays.h5", "w") as file:
    file["steps"] = numpy.arange(100_000).reshape(100, 1000)
    file.create_dataset("chunked", data=numpy.ones((300, 300)), chunks=(64, 64), compression=4)
    file.create_dataset("grows", data=numpy.zeros(10), maxshape=(None,), chunks=(16,))
with h5py.File("arrays.h5", "r+") as file:
    file["grows"].resize((1000,))
    file["grows"][10:] = 7
with h5py.File("arrays.h5", "r") as file:
    print("hdf5", file["steps"][50, 10], file["chunked"][:].sum(), file["grows"][:].sum())

with netCDF4.Dataset("weather.nc", "w") as file:
    file.createDimension("time", None)
    file.createDimension("x", 500)
    field = file.createVariable("field", "f8", ("time", "x"), zlib=True)
    for step in range(20):
        field[step, :] = numpy.full(500, step)
with netCDF4.Dataset("weather.nc", "a") as file:
    file["field"][20, :] = 1
with netCDF4.Dataset("weather.nc", "r") as file:
    print("netcdf", file["field"].shape, float(file["field"][:].sum()))

state = {"weights": torch.arange(500_000, dtype=torch.float32).reshape(500, 1000), "step": 12}
torch.save(state, "model.pt")
again = torch.load("model.pt")
print("torch", bool((again["weights"] == state["weights"]).all()), again["step"])
