"""What tests of running gateways start them with, and no installed gateway needs."""
