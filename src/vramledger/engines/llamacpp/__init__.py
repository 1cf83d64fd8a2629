"""llama.cpp: what its server and libraries hold on devices and host, by build."""
