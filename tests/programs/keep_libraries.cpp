// Linked into the program under the address sanitizer alone: libraries stay loaded until the end.
// A leak in a graphics driver that has been unloaded has no name, and lsan.supp goes by names.
extern "C" int dlclose(void*) { return 0; }
