// A stand-in library has a name of its own and no symbols of its own.
